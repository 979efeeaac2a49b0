"""Publishes one artifact in a sandbox; started by tests that kill it. Arguments: sandbox root, port, model, text."""

import sys
from pathlib import Path

from buildlib.sandbox import Sandbox
from tests.integration.publish_kit import Desk

if __name__ == "__main__":
    root, port, name, text = sys.argv[1:]
    sandbox = Sandbox(root=Path(root), port=int(port))
    desk = Desk(sandbox=sandbox, settings=sandbox.target(), blobs=Path(root).parent / "blobs")
    desk.target.publish(desk.request(name, text.encode()))
    print("published")
