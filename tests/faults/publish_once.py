"""Does one thing in a sandbox, for tests that kill it. Arguments: sandbox root, port, model, text, [what, kind].

what: publish (the default), unpublish, catalog. kind: git (the default), folder.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from buildlib.core.manifests.catalog_release import NewCatalog, new_catalog
from buildlib.ports.target import Target
from buildlib.sandbox import Sandbox
from tests.integration.publish_kit import Desk, folder, model

ROOT = Path(__file__).parents[2]
TINYGRAD = "0a1b77e0" * 5


def target(desk: Desk, kind: str) -> Target:
    return desk.target if kind == "git" else folder(desk)


def start_catalog(desk: Desk, kind: str) -> None:
    def make(manifests: Mapping[str, bytes]) -> NewCatalog:
        models = [model(name) for name in ("tobyrl", "nopp", "drl3")]
        return new_catalog(desk.settings, models, manifests, TINYGRAD, drop=("*",))

    target(desk, kind).start_catalog(make)


def traced(desk: Desk, calls: str, options: Sequence[str], *arguments: str, log: str = "/dev/null") -> bool:
    """Does one thing of this module under strace, which looks at `calls`; True when it ended by itself."""
    done = subprocess.run(
        [
            "strace", "-qq", "-o", log, "-e", f"trace={calls}", *options,
            sys.executable, "-m", "tests.faults.publish_once",
            str(desk.sandbox.root), str(desk.sandbox.port), *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    return "published" in done.stdout


if __name__ == "__main__":
    root, port, name, text, what, kind = [*sys.argv[1:], "publish", "git"][:6] if len(sys.argv) == 5 else sys.argv[1:]
    sandbox = Sandbox(root=Path(root), port=int(port))
    desk = Desk(sandbox=sandbox, settings=sandbox.target(), blobs=Path(root).parent / "blobs")
    if what == "publish":
        target(desk, kind).publish(desk.request(name, text.encode()))
    elif what == "unpublish":
        target(desk, kind).unpublish(model(name), "Take back")
    else:
        start_catalog(desk, kind)
    print("published")
