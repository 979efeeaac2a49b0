"""What may be wrong with a device behind SSH: one line each with the remedy, by `doit` and `doit doctor` (issue 4)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.devices.comma import SUDO_REFUSES
from tests.devices.network import link
from tests.devices.server import SSHD_MARKS, free_port, make_key
from tests.support.projects import until
from tests.support.ssh_projects import (
    ACTIVE,
    REMOTE_OUTPUT,
    STATE,
    SshProject,
    small_disk,
)
from tests.support.ssh_said import of_build, told

pytestmark = SSHD_MARKS
ONE = "driving_supercombo_one.pkl"


def of_doctor(desk: SshProject) -> str:
    """The bad lines of `doit doctor`, each with its remedy."""
    run = desk.doit("doctor", "desk")
    assert run.status == 1, run.text
    lines = told(desk, run.out).splitlines()
    chosen = [(line, after) for line, after in zip(lines, [*lines[1:], ""], strict=True) if line.startswith("  BAD")]
    return "\n".join(f"{line}\n{after}" for line, after in chosen)


def both(desk: SshProject, what: str, remedy: str) -> None:
    """A device that cannot be reached or entered: the build and the doctor say the same."""
    assert of_build(desk) == f"  what  {what}\n  try   {remedy}"
    assert of_doctor(desk) == f"  BAD   {what}\n        try: {remedy}"


def test_a_closed_port(desk: SshProject) -> None:
    desk.set(port=free_port())
    both(
        desk,
        "desk (USER@127.0.0.1:PORT): port PORT is closed",
        "does an SSH server listen on 127.0.0.1:PORT? check `port`, and that SSH is enabled there",
    )


def test_a_wrong_user(desk: SshProject) -> None:
    desk.set(user="nobody")
    both(
        desk,
        "desk (nobody@127.0.0.1:PORT): login as nobody refused: got HOME/.ssh/id_ed25519 offered",
        "is `user` right? else add the public key: `ssh-copy-id -i HOME/.ssh/id_ed25519 -p PORT nobody@127.0.0.1`",
    )


def test_an_unknown_host_key_that_doctor_then_pins(desk: SshProject) -> None:
    file = desk.comma.home / "known of another"
    file.write_text("")
    desk.set(known_hosts=str(file))
    both(
        desk,
        "desk (USER@127.0.0.1:PORT): the host key of [127.0.0.1]:PORT is unknown: got ssh-ed25519 SHA256:ITS-OWN",
        "compare with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` there, "
        "then doit doctor --trust desk SHA256:ITS-OWN",
    )
    desk.doit("doctor", "--trust", "desk", desk.comma.server.fingerprint()).ok()
    assert desk.doit("doctor", "desk").status == 0


def test_a_changed_host_key(desk: SshProject, tmp_path: Path) -> None:
    key = make_key(tmp_path / "other")
    file = desk.comma.home / "known before"
    file.write_text(f"[127.0.0.1]:{desk.comma.port} {' '.join(Path(f'{key}.pub').read_text().split()[:2])}\n")
    desk.set(known_hosts=str(file))
    doctor = of_doctor(desk)
    assert "has CHANGED: another machine answers, or it was reinstalled" in doctor
    assert "try: only if you know why: delete line 1 of HOME/known before by hand, then trust the new key" in doctor
    assert "has CHANGED" in of_build(desk)
    # Nothing overrides it.
    assert desk.doit("doctor", "--trust", "desk", desk.comma.server.fingerprint()).status != 0
    assert "has CHANGED" in of_doctor(desk)


def test_no_right_to_sudo(desk: SshProject) -> None:
    sudo = desk.comma.home.parent / "programs/sudo"
    sudo.write_text(SUDO_REFUSES)
    sudo.chmod(0o755)
    try:
        both(
            desk,
            "desk: sudo does not run commands without a password: got sudo: a password is required",
            "allow the user `sudo -n` on the device, or set sudo: false for it in models.yaml",
        )
    finally:
        sudo.unlink()


def test_a_full_disk(desk: SshProject) -> None:
    with small_disk(desk.there("data/media/0"), "2m"):
        assert of_build(desk) == (
            "  what  desk:ROOT/data/media/0: not enough free space: "
            "expected 70 MB (3 MB and 64 MiB to spare), got 2 MB\n"
            "  try   doit gc --device desk --yes, or remove files from the disk by hand"
        )
        assert of_doctor(desk).startswith(
            "  BAD   0.00 GB free, a model needs 0.08\n        try: doit gc --device desk"
        )
        assert not list(desk.there("data/media/0").rglob("*.onnx*"))


def test_a_disk_with_room_for_the_onnx_and_none_for_the_artifact(desk: SshProject) -> None:
    with small_disk(desk.there("data/media/0/models"), "66m"):
        assert of_build(desk, "compile") == (
            "  what  desk:ROOT/data/media/0/models: not enough free space: "
            "expected 70 MB (3 MB and 64 MiB to spare), got 69 MB\n"
            "  try   doit gc --device desk --yes, or remove files from the disk by hand"
        )
        assert desk.calls() == []


def test_a_read_only_model_directory(desk: SshProject) -> None:
    with small_disk(desk.there("data/media/0/models"), "200m"):
        subprocess.run(["mount", "-o", "remount,ro", str(desk.there("data/media/0/models"))], check=True)
        what = "/data/media/0/models: not writable: Read-only file system"
        remedy = "see in `dmesg` there why, then mount it writable: `sudo mount -o remount,rw` and the disk of "
        assert of_build(desk, "compile") == f"  what  desk: {what}\n  try   {remedy}/data/media/0/models"
        assert of_doctor(desk) == f"  BAD   {what}\n        try: {remedy}/data/media/0/models"
        assert desk.calls() == []


def test_a_cache_that_cannot_be_made(desk: SshProject) -> None:
    desk.there("data/root-cache").write_text("in the way")
    try:
        what = "/data/root-cache: a directory cannot be made: File exists"
        remedy = "something else lies there: move it away (`sudo mv /data/root-cache /data/root-cache.old`)"
        assert of_build(desk, "compile") == f"  what  desk: {what}\n  try   {remedy}"
        assert of_doctor(desk) == f"  BAD   {what}\n        try: {remedy}"
        assert desk.calls() == []
    finally:
        desk.there("data/root-cache").unlink()


def test_a_skewed_clock_is_a_note_and_spoils_nothing(desk: SshProject) -> None:
    python = desk.there("usr/local/venv/bin/python")
    kept = python.read_text()
    # What the device's own python is told of the time, its agent's too.
    ahead = "import time as t; now = t.time; t.time = lambda: now() + 7200\n"
    python.write_text(
        '#!/bin/sh\n[ "$4" = -c ] || ' + kept.splitlines()[1] + f'\nahead="{ahead}"\ncode="$ahead$5"; shift 5\n'
        'exec "$(head -1 "$0.real")" -I -S -B -c "$code" "$@"\n'
    )
    python.with_name("python.real").write_text(kept.splitlines()[1].split('"')[0].removeprefix("exec ").strip() + "\n")
    try:
        desk.doit().ok()
        desk.assert_right()
        said = desk.doit("doctor", "desk").ok().out
        assert "  note  its clock is 7200 s off; nothing here depends on it\n        try: connect it" in said
        assert desk.doit().ok().text == "1 model up to date.\n"
    finally:
        python.write_text(kept)


# Devices that do not do what they say.


def test_an_artifact_of_ten_kilobytes_is_refused_and_not_installed(desk: SshProject, tmp_path: Path) -> None:
    small = tmp_path / "small.pkl"
    small.write_bytes((desk.control() / "artifact").read_bytes()[:10_000])
    with instead_of_the_artifact(desk, small):
        assert "driving_supercombo_one.pkl" in of_build(desk, "verify")
        assert not desk.there(ACTIVE).exists()


def test_an_artifact_that_changes_on_its_way_is_refused_and_not_installed(desk: SshProject) -> None:
    desk.doit("compile").ok()
    output = desk.there(REMOTE_OUTPUT)
    with link(desk.comma.port, rate=4e6) as slow:
        desk.through(slow)
        run = desk.start()
        until(lambda: list((desk.root / ".build/incoming").glob(".*.part")))
        with output.open("r+b") as file:
            file.seek(-1000, 2)
            file.write(b"changed")
        out, err = run.communicate(timeout=100)
    assert "Traceback" not in out + err
    assert run.returncode == 1
    assert "one pull failed\n  what  desk:/data/media/0/models/driving_supercombo_one.recompiled.pkl: " in out
    assert "the file from the device is not the one that was made there: expected " in out
    assert not desk.artifact("one").exists()
    assert not desk.there(ACTIVE).exists()
    assert not list((desk.root / ".build/incoming").glob("*")), "what arrived wrong is not kept"
    # The next build sees by its probe that the device lost the artifact, and makes it again.
    desk.set(port=desk.comma.port, known_hosts=str(desk.comma.home / "known_hosts"))
    desk.doit().ok()
    desk.assert_right()


@pytest.mark.parametrize("undone", [False, True])
def test_another_tinygrad_after_the_compile_than_before_is_refused(desk: SshProject, undone: bool) -> None:
    package = desk.there("data/openpilot/tinygrad_repo/tinygrad/__init__.py")
    kept = package.read_text()
    hook = f"p = {str(package)!r}\nkept = open(p).read()\nopen(p, 'w').write(kept + '# other')\n"
    desk.wish("hook", "one", hook + ("open(p, 'w').write(kept)\n" if undone else ""))
    try:
        said = of_build(desk, "compile")
        assert said == (
            "  what  one on desk: changed while the job ran: "
            + ("bytes that went and came back" if undone else "the toolchain is another than at the probe: tinygrad")
            + "\n  try   nothing was recorded; run doit again"
        )
        assert not desk.there(REMOTE_OUTPUT).exists()
        assert not desk.there(ACTIVE).exists()
        assert not list((desk.root / ".build/receipts").glob("compile/*"))
    finally:
        package.write_text(kept)


def test_an_ended_compile_leaves_power_saving_as_it_was(desk: SshProject) -> None:
    core = desk.there("sys/devices/system/cpu/cpu4/online")
    core.parent.mkdir(parents=True, exist_ok=True)
    core.write_text("0")
    desk.wish("hook", "one", f"open({str(core) + '.seen'!r}, 'w').write(open({str(core)!r}).read())")
    try:
        desk.doit().ok()
        assert core.with_name("online.seen").read_text() == "1"
        assert core.read_text() == "0"
    finally:
        shutil.rmtree(desk.there("sys"))


class instead_of_the_artifact:
    """The stand-in leaves another file."""

    def __init__(self, desk: SshProject, file: Path) -> None:
        self.link = desk.control() / "artifact"
        self.file = file

    def __enter__(self) -> None:
        self.kept = self.link.readlink()
        self.link.unlink()
        self.link.symlink_to(self.file)

    def __exit__(self, *_: object) -> None:
        self.link.unlink()
        self.link.symlink_to(self.kept)


def test_the_state_directory_of_the_device_is_private(desk: SshProject) -> None:
    desk.doit().ok()
    assert desk.there(STATE).stat().st_mode & 0o777 == 0o700
