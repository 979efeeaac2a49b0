"""What builds on a device behind SSH say and leave, told without what differs from machine to machine."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

from tests.support.ssh_projects import SshProject


@contextlib.contextmanager
def fresh(project: SshProject) -> Iterator[SshProject]:
    """The project as one that has done nothing yet; its declaration is put back afterwards."""
    settings, models, head = copy.deepcopy((project.settings, project.models, project.head))
    project.forget()
    try:
        yield project
    finally:
        project.settings, project.models, project.head, project.more_devices = settings, models, head, {}
        project.declare()


def told(desk: SshProject, text: str) -> str:
    """Without what differs from machine to machine."""
    server = desk.comma.server
    for name, word in (
        (str(desk.comma.home), "HOME"),
        (str(desk.comma.root), "ROOT"),
        (f":{desk.settings['port']}", ":PORT"),
        (f"-p {desk.settings['port']}", "-p PORT"),
        (f"port {desk.settings['port']}", "port PORT"),
        (server.fingerprint(), "SHA256:ITS-OWN"),
        (f"{server.user}@", "USER@"),
    ):
        text = text.replace(name, word)
    return text


def of_build(desk: SshProject, stage: str = "upload") -> str:
    """What a failed build says of a stage, what and try."""
    run = desk.doit()
    assert run.status == 1, run.text
    lines = told(desk, run.out).splitlines()
    start = lines.index(f"one {stage} failed")
    return "\n".join(line for line in lines[start + 1 :] if line.startswith(("  what  ", "  try   ")))


def snapshot(desk: SshProject) -> dict[str, tuple[int, int, int]]:
    """Every file of the device, by inode, size and time."""
    found = {}
    for path in desk.comma.root.rglob("*"):
        if path.is_file():
            status = path.stat()
            found[str(path)] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found
