"""Does one thing in a sandbox, for tests that kill it. Arguments: sandbox root, port, model, text, [what, kind].

what: publish (the default), unpublish, catalog. kind: git (the default), folder.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from buildlib.core.manifests.catalog_release import NewCatalog, new_catalog
from buildlib.ports.target import Target
from buildlib.sandbox import Sandbox
from buildlib.targets.folder import Folder
from tests.integration.publish_kit import Desk, model

TINYGRAD = "0a1b77e0" * 5


def target(desk: Desk, kind: str) -> Target:
    return desk.target if kind == "git" else Folder(desk.settings, desk.clone)


def start_catalog(desk: Desk, kind: str) -> None:
    def make(manifests: Mapping[str, bytes]) -> NewCatalog:
        models = [model(name) for name in ("tobyrl", "nopp", "drl3")]
        return new_catalog(desk.settings, models, manifests, TINYGRAD, drop=("*",))

    target(desk, kind).start_catalog(make)


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
