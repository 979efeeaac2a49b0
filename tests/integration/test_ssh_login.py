"""Logging in: host keys on every hop, keys of every kind, and one line with its remedy for whatever is wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from buildlib.core.catalog import Device
from buildlib.errors import BuildError, DeviceError, DeviceUnreachable, HostKeyError
from buildlib.transports.ssh import SshTransport
from buildlib.transports.ssh_trust import pin_host_key
from tests.devices import SSHD_MARKS, CommaDevice, comma_device, make_key, sshd
from tests.devices.server import HOST, free_port

pytestmark = SSHD_MARKS
UNKNOWN = "SHA256:" + "A" * 43


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommaDevice]:
    with comma_device(tmp_path_factory.mktemp("devices")) as device:
        yield device


def say(device: Device, home: Path, word: str = "hello") -> str:
    """One command over a new connection."""
    transport = SshTransport(device, home=home, project=home)
    try:
        return transport.run(("echo", word), idle_timeout=10).stdout.decode().strip()
    finally:
        transport.close()


def refusal(kind: type[BuildError], device: Device, home: Path) -> BuildError:
    with pytest.raises(kind) as caught:
        say(device, home)
    error = caught.value
    assert type(error) is kind
    assert "\n" not in error.headline()
    assert error.remedy
    return error


def unpinned(device: CommaDevice, tmp_path: Path) -> Device:
    return device.with_(known_hosts=str(tmp_path / "pins"))


def test_a_pinned_device_answers(desk: CommaDevice) -> None:
    assert say(desk.catalog_device, desk.home) == "hello"


def test_an_unknown_host_key_is_refused_with_its_fingerprint(desk: CommaDevice, tmp_path: Path) -> None:
    before = desk.server.log.count("Accepted publickey")
    error = refusal(HostKeyError, unpinned(desk, tmp_path), desk.home)
    assert desk.server.fingerprint() in error.headline()
    assert f"doit doctor --trust desk {desk.server.fingerprint()}" in (error.remedy or "")
    assert desk.server.log.count("Accepted publickey") == before
    assert not (tmp_path / "pins").exists()


def test_trusting_the_right_fingerprint_pins_the_key(desk: CommaDevice, tmp_path: Path) -> None:
    (tmp_path / "pins").write_text("# ours")
    device = unpinned(desk, tmp_path)
    assert "pinned" in pin_host_key(device, desk.server.fingerprint(), home=desk.home)
    assert (tmp_path / "pins").read_text() == "# ours\n" + desk.server.known_hosts_line()
    assert say(device, desk.home) == "hello"
    assert "known by this key already" in pin_host_key(device, desk.server.fingerprint(), home=desk.home)
    assert (tmp_path / "pins").read_text().count("ssh-ed25519") == 1


def test_trusting_another_fingerprint_pins_nothing(desk: CommaDevice, tmp_path: Path) -> None:
    with pytest.raises(HostKeyError, match="shows another key"):
        pin_host_key(unpinned(desk, tmp_path), UNKNOWN, home=desk.home)
    assert not (tmp_path / "pins").exists()


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_a_changed_host_key_is_refused_and_trust_does_not_override_it(
    desk: CommaDevice, tmp_path: Path, kind: str
) -> None:
    other = make_key(tmp_path / "other", kind)
    pins = tmp_path / "pins"
    public = " ".join(Path(f"{other}.pub").read_text().split()[:2])
    pins.write_text(f"\n[{HOST}]:{desk.port} {public}\n")
    before = pins.read_bytes()
    error = refusal(HostKeyError, unpinned(desk, tmp_path), desk.home)
    assert "CHANGED" in error.headline()
    assert f"{pins}:2" in error.headline()
    assert desk.server.fingerprint() in error.headline()
    with pytest.raises(HostKeyError, match="CHANGED"):
        pin_host_key(unpinned(desk, tmp_path), desk.server.fingerprint(), home=desk.home)
    assert pins.read_bytes() == before


def test_a_revoked_host_key_is_refused(desk: CommaDevice, tmp_path: Path) -> None:
    line = desk.server.known_hosts_line()
    (tmp_path / "pins").write_text(f"{line}@revoked {line}")
    assert "revoked" in refusal(HostKeyError, unpinned(desk, tmp_path), desk.home).headline()


def test_hashed_known_hosts_in_the_users_own_file_are_read(desk: CommaDevice, tmp_path: Path) -> None:
    ssh = tmp_path / ".ssh"
    ssh.mkdir()
    (ssh / "known_hosts").write_text(desk.server.known_hosts_line())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", ssh / "known_hosts"], check=True, capture_output=True)
    assert HOST not in (ssh / "known_hosts").read_text()
    assert say(desk.with_(known_hosts=None), tmp_path) == "hello"


def test_the_users_config_is_honoured(desk: CommaDevice, tmp_path: Path) -> None:
    ssh = tmp_path / ".ssh"
    ssh.mkdir()
    (ssh / "config").write_text("Include more\n")
    (ssh / "more").write_text(
        f"Host comma\n  HostName {HOST}\n  Port {desk.port}\n  User {desk.server.user}\n"
        f'  IdentityFile "{desk.catalog_device.identity}"\n  HostKeyAlias the-desk\n'
    )
    (ssh / "known_hosts").write_text(f"the-desk {desk.server.host_key()}\n")
    assert say(Device(name="desk", host="comma"), tmp_path) == "hello"


def test_a_host_is_asked_for_the_kind_of_key_that_it_is_known_by(desk: CommaDevice, tmp_path: Path) -> None:
    authorized = Path(f"{desk.catalog_device.identity}.pub").read_text()
    kinds = ("ed25519", "ecdsa", "rsa")
    with sshd(tmp_path / "s", authorized=authorized, host_keys=kinds) as server:
        for kind in kinds:
            (tmp_path / "pins").write_text(server.known_hosts_line(kind))
            assert say(desk.with_(port=server.port, known_hosts=str(tmp_path / "pins")), desk.home) == "hello"


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_every_usual_kind_of_key_logs_in(desk: CommaDevice, tmp_path: Path, kind: str) -> None:
    key = make_key(tmp_path / "key", kind)
    with (desk.server.directory / "authorized_keys").open("a") as authorized:
        authorized.write(Path(f"{key}.pub").read_text())
    assert say(desk.with_(identity=str(key)), desk.home) == "hello"


def test_a_key_that_the_device_does_not_know_is_refused(desk: CommaDevice, tmp_path: Path) -> None:
    key = make_key(tmp_path / "stranger")
    error = refusal(DeviceError, desk.with_(identity=str(key)), desk.home)
    assert f"login as {desk.server.user} refused" in error.headline()
    assert f"ssh-copy-id -i {key}" in (error.remedy or "")


def test_a_wrong_user_is_refused(desk: CommaDevice) -> None:
    error = refusal(DeviceError, desk.with_(user="nobody-like-this"), desk.home)
    assert "login as nobody-like-this refused" in error.headline()
    assert "`user`" in (error.remedy or "")


def test_a_missing_key_names_its_path(desk: CommaDevice, tmp_path: Path) -> None:
    error = refusal(DeviceError, desk.with_(identity=str(tmp_path / "gone")), desk.home)
    assert str(tmp_path / "gone") in error.headline()


def test_a_file_that_is_no_key_says_so(desk: CommaDevice, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("not a key")
    assert "not a key" in refusal(DeviceError, desk.with_(identity=str(tmp_path / "notes")), desk.home).headline()


@pytest.mark.parametrize("half", ["notes", "notes.pub"])
def test_a_pipe_is_not_waited_for_as_a_key(desk: CommaDevice, tmp_path: Path, half: str) -> None:
    (tmp_path / "notes").write_text("not a key")
    (tmp_path / half).unlink(missing_ok=True)
    os.mkfifo(tmp_path / half)
    headline = refusal(DeviceError, desk.with_(identity=str(tmp_path / "notes")), desk.home).headline()
    assert ("FIFO" if half == "notes" else "not a key") in headline


def test_without_any_key_the_remedy_says_how_to_get_one(desk: CommaDevice, tmp_path: Path) -> None:
    error = refusal(DeviceError, desk.with_(identity=None), tmp_path)
    assert "no private key" in error.headline()


def test_an_encrypted_key_names_the_agent(desk: CommaDevice, tmp_path: Path) -> None:
    key = make_key(tmp_path / "locked", passphrase="secret words")
    error = refusal(DeviceError, desk.with_(identity=str(key)), desk.home)
    assert "encrypted" in error.headline()
    assert f"ssh-add {key}" in (error.remedy or "")
    assert "agent: true" in (error.remedy or "")


def test_the_agent_is_used_when_asked_for_and_only_then(
    desk: CommaDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key(tmp_path / "agents")
    with (desk.server.directory / "authorized_keys").open("a") as authorized:
        authorized.write(Path(f"{key}.pub").read_text())
    socket = f"{os.path.relpath(tmp_path)}/agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        while not Path(socket).exists():
            assert agent.poll() is None
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        # Seven strangers first: offering them all would make the server hang up.
        for number in range(7):
            subprocess.run(["ssh-add", "-q", make_key(tmp_path / f"stranger{number}")], check=True)
        subprocess.run(["ssh-add", "-q", key], check=True)
        # Only the agent has it from now on; its public half says which of the agent's to offer.
        key.unlink()
        shutil.copy(make_key(tmp_path / "locked", passphrase="secret words"), key)
        device = desk.with_(identity=str(key), agent=True)
        assert say(device, desk.home) == "hello"
        assert "encrypted" in refusal(DeviceError, desk.with_(identity=str(key)), desk.home).headline()
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait()


def test_a_closed_port_is_one_line(desk: CommaDevice) -> None:
    error = refusal(DeviceUnreachable, desk.with_(port=free_port()), desk.home)
    assert "closed" in error.headline()


def test_an_unknown_host_is_one_line(desk: CommaDevice) -> None:
    error = refusal(DeviceUnreachable, desk.with_(host="no-such-desk.invalid"), desk.home)
    assert "no host is called no-such-desk.invalid" in error.headline()


@pytest.fixture(scope="module")
def gate_and_desk(tmp_path_factory: pytest.TempPathFactory, desk: CommaDevice) -> Iterator[tuple[CommaDevice, Device]]:
    """A second real server to jump over, and the desk as reached through it."""
    with comma_device(tmp_path_factory.mktemp("jump"), name="gate") as gate:
        with (gate.server.directory / "authorized_keys").open("a") as authorized:
            authorized.write(Path(f"{desk.catalog_device.identity}.pub").read_text())
        jump = f"{gate.server.user}@{HOST}:{gate.port}"
        yield gate, desk.with_(proxy_jump=jump)


def pinned(device: Device, tmp_path: Path, *lines: str) -> Device:
    (tmp_path / "pins").write_text("".join(lines))
    return msgspec.structs.replace(device, known_hosts=str(tmp_path / "pins"))


def test_a_device_is_reached_over_a_jump(
    desk: CommaDevice, gate_and_desk: tuple[CommaDevice, Device], tmp_path: Path
) -> None:
    gate, device = gate_and_desk
    before = gate.server.log.count("Accepted publickey")
    device = pinned(device, tmp_path, gate.server.known_hosts_line(), desk.server.known_hosts_line())
    assert say(device, desk.home) == "hello"
    assert gate.server.log.count("Accepted publickey") == before + 1


def test_the_jumps_own_host_key_is_checked(
    desk: CommaDevice, gate_and_desk: tuple[CommaDevice, Device], tmp_path: Path
) -> None:
    gate, device = gate_and_desk
    error = refusal(HostKeyError, pinned(device, tmp_path, desk.server.known_hosts_line()), desk.home)
    assert gate.server.fingerprint() in error.headline()
    assert "jump" in error.headline()


def test_behind_a_jump_the_devices_host_key_is_checked(
    desk: CommaDevice, gate_and_desk: tuple[CommaDevice, Device], tmp_path: Path
) -> None:
    gate, device = gate_and_desk
    error = refusal(HostKeyError, pinned(device, tmp_path, gate.server.known_hosts_line()), desk.home)
    assert desk.server.fingerprint() in error.headline()


def test_a_way_over_a_jump_is_pinned_hop_by_hop(
    desk: CommaDevice, gate_and_desk: tuple[CommaDevice, Device], tmp_path: Path
) -> None:
    gate, device = gate_and_desk
    device = pinned(device, tmp_path)
    with pytest.raises(HostKeyError):
        pin_host_key(device, desk.server.fingerprint(), home=desk.home)
    pin_host_key(device, gate.server.fingerprint(), home=desk.home)
    pin_host_key(device, desk.server.fingerprint(), home=desk.home)
    assert say(device, desk.home) == "hello"


def test_a_jump_that_cannot_reach_the_device_says_so(
    desk: CommaDevice, gate_and_desk: tuple[CommaDevice, Device], tmp_path: Path
) -> None:
    gate, device = gate_and_desk
    device = msgspec.structs.replace(device, port=free_port())
    error = refusal(DeviceUnreachable, pinned(device, tmp_path, gate.server.known_hosts_line()), desk.home)
    assert "the jump host cannot reach" in error.headline()


def test_a_link_over_a_jump_that_is_cut_opens_again(
    desk: CommaDevice, gate_and_desk: tuple[CommaDevice, Device], tmp_path: Path
) -> None:
    gate, device = gate_and_desk
    device = pinned(device, tmp_path, gate.server.known_hosts_line(), desk.server.known_hosts_line())
    transport = SshTransport(device, home=desk.home)
    try:
        assert transport.run(("echo", "1"), idle_timeout=10).stdout == b"1\n"
        gate.server.kill_connections()
        assert transport.run(("echo", "2"), idle_timeout=10).stdout == b"2\n"
    finally:
        transport.close()
