"""A models repository to practise on: real git, real manifests, a real server, all on this machine."""

from buildlib.sandbox.repository import Sandbox, make_sandbox, open_sandbox

__all__ = ["Sandbox", "make_sandbox", "open_sandbox"]
