from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

import pytest

from buildlib.errors import HostKeyError
from buildlib.transports.ssh_config import Hop
from buildlib.transports.ssh_connection import known_keys
from buildlib.transports.ssh_known_hosts import entry_line, entry_name, fingerprint, judge, keys_for

KEY = base64.b64encode(b"one key").decode()
OTHER = base64.b64encode(b"other key").decode()


def found(name: str, text: str) -> list[bytes]:
    return [key.blob for key in keys_for(name, "known_hosts", text)]


@pytest.mark.parametrize(
    ("host", "port", "name"), [("Desk.lan", 22, "desk.lan"), ("desk", 2222, "[desk]:2222"), ("::1", 22, "::1")]
)
def test_a_host_is_named_with_its_port_unless_it_is_22(host: str, port: int, name: str) -> None:
    assert entry_name(host, port) == name


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("desk", "desk", True),
        ("DESK.lan", "desk.lan", True),
        ("gate,desk", "desk", True),
        ("*.lan", "desk.lan", True),
        ("d?sk", "desk", True),
        ("*.lan,!desk.lan", "desk.lan", False),
        ("!desk.lan,*.lan", "gate.lan", True),
        ("[desk]:2222", "[desk]:2222", True),
        ("[desk]:*", "[desk]:2222", True),
        ("desk", "[desk]:2222", False),
        ("[desk]:2222", "d", False),
        ("desk", "desk.lan", False),
    ],
)
def test_patterns_match_as_in_openssh(pattern: str, name: str, matches: bool) -> None:
    assert bool(found(name, f"{pattern} ssh-ed25519 {KEY} a comment\n")) is matches


@pytest.mark.parametrize("name", ["desk.lan", "[127.0.0.1]:2222"])
def test_names_that_openssh_hashed_are_found(tmp_path: Path, name: str) -> None:
    file = tmp_path / "known_hosts"
    public = "AAAAC3NzaC1lZDI1NTE5AAAAIJ5Qm3Rj0lqJpMFK3mJ6Wm8wYV1Z1u8j9yq3b7nP0m5K"
    file.write_text(f"{name} ssh-ed25519 {public}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert name not in file.read_text()
    assert found(name, file.read_text()) == [base64.b64decode(public)]
    assert found("gate", file.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# desk ssh-ed25519 " + KEY,
        "#,desk ssh-ed25519 " + KEY,
        "desk",
        "desk ssh-ed25519",
        "desk ssh-ed25519 not*base64",
        "desk ssh-ed25519 *" + KEY,
        "|1|YWJj ssh-ed25519 " + KEY,
        "|1|broken ssh-ed25519 " + KEY,
        "|1|***|*** ssh-ed25519 " + KEY,
        "@cert-authority desk ssh-ed25519 " + KEY,
        "@unheard-of desk ssh-ed25519 " + KEY,
        "@revoked",
    ],
)
def test_lines_that_are_no_entries_are_skipped(line: str) -> None:
    assert found("desk", f"{line}\ndesk ssh-ed25519 {OTHER}\n") == [b"other key"]


def test_verdicts() -> None:
    text = f"desk ssh-ed25519 {KEY}\n@revoked * ssh-ed25519 {OTHER}\n"
    known = keys_for("desk", "known_hosts", text)
    assert judge(known, b"one key")[0] == "known"
    assert judge(known, b"a third")[0] == "changed"
    assert judge(known, b"other key")[0] == "revoked"
    assert judge([], b"one key") == ("unknown", None)
    assert judge(keys_for("gate", "known_hosts", text), b"one key") == ("unknown", None)


def test_a_revoked_key_stays_revoked_where_another_line_trusts_it() -> None:
    text = f"desk ssh-ed25519 {KEY}\n@revoked desk ssh-ed25519 {KEY}\n"
    verdict, line = judge(keys_for("desk", "f", text), b"one key")
    assert line is not None
    assert (verdict, line.line) == ("revoked", 2)


def test_a_changed_key_names_the_line_that_knew_better() -> None:
    verdict, line = judge(keys_for("desk", "/f", f"\n\ndesk ssh-rsa {KEY}\n"), b"x")
    assert line is not None
    assert (verdict, line.file, line.line, line.key_type) == ("changed", "/f", 3, "ssh-rsa")


def test_a_line_that_is_written_is_read_again() -> None:
    line = entry_line("[desk]:2222", "ssh-ed25519", b"one key")
    assert line.endswith("\n")
    assert found("[desk]:2222", line) == [b"one key"]


def test_a_fingerprint_is_openssh_s(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True)
    shown = subprocess.run(["ssh-keygen", "-lf", tmp_path / "k.pub"], check=True, capture_output=True, text=True).stdout
    blob = base64.b64decode((tmp_path / "k.pub").read_text().split()[1])
    assert fingerprint(blob) == shown.split()[1]


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_only_a_newline_ends_a_line(end: str) -> None:
    assert found("desk", f"gate ssh-ed25519 {KEY} a comment{end}desk ssh-ed25519 {KEY}\n") == []


def test_lines_may_end_as_on_windows() -> None:
    assert found("desk", f"gate ssh-ed25519 {KEY}\r\ndesk ssh-ed25519 {OTHER}\r\n") == [b"other key"]


def test_a_file_that_cannot_be_read_is_an_error_since_it_may_revoke_the_key(tmp_path: Path) -> None:
    good, loop = tmp_path / "known_hosts", tmp_path / "loop"
    good.write_text(f"desk ssh-ed25519 {KEY}\n")
    loop.symlink_to(loop)
    with pytest.raises(HostKeyError, match="known_hosts cannot be read"):
        known_keys(hop_with(good, loop))


def test_no_file_a_folder_and_a_pipe_hold_no_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    files = [tmp_path / name for name in ("pipe", "dangling", "missing", "missing/too")]
    assert known_keys(hop_with(tmp_path, *files)) == []


def hop_with(*files: Path) -> Hop:
    return Hop(
        label="desk", host="desk", port=22, user="iq", key_name="desk", identities=(), chosen=False, known_hosts=files
    )
