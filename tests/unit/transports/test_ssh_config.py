from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from buildlib.core.catalog import Device
from buildlib.errors import DeviceError
from buildlib.transports.ssh_config import Hop, flatten, pins_file, route


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home of a user"
    (home / ".ssh").mkdir(parents=True)
    return home


def configure(home: Path, text: str, name: str = "config") -> None:
    file = home / ".ssh" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def hops(home: Path, device: Device) -> tuple[Hop, ...]:
    return route(device, home=home, project=home / "project")


def last(home: Path, device: Device) -> Hop:
    return hops(home, device)[-1]


def test_without_a_config_the_device_speaks_for_itself(home: Path) -> None:
    hop = last(home, Device(name="desk", host="192.168.1.7", user="iq", identity="~/.ssh/comma"))
    assert (hop.host, hop.port, hop.user, hop.key_name) == ("192.168.1.7", 22, "iq", "192.168.1.7")
    assert hop.identities == (home / ".ssh" / "comma",)


def test_the_config_fills_what_the_device_leaves_open(home: Path) -> None:
    configure(
        home,
        "Host desk\n  HostName 10.0.0.7\n  Port 2222\n  User iq\n"
        "  IdentityFile ~/.ssh/comma key\n  HostKeyAlias thedesk\n",
    )
    hop = last(home, Device(name="d", host="desk"))
    assert (hop.host, hop.port, hop.user, hop.key_name) == ("10.0.0.7", 2222, "iq", "thedesk")
    assert hop.identities == (home / ".ssh" / "comma key",)


def test_the_device_wins_over_the_config(home: Path) -> None:
    configure(home, "Host desk\n  Port 2222\n  User other\n  IdentityFile ~/.ssh/other\n")
    hop = last(home, Device(name="d", host="desk", port=2200, user="iq", identity="keys/mine"))
    assert (hop.port, hop.user, hop.key_name) == (2200, "iq", "[desk]:2200")
    assert hop.identities == (home / "project" / "keys" / "mine",)


def test_a_device_without_a_host_is_looked_up_by_its_name(home: Path) -> None:
    configure(home, "Host desk\n  HostName 10.0.0.7\n")
    assert last(home, Device(name="desk")).host == "10.0.0.7"


def test_the_user_is_the_local_one_when_nobody_says(home: Path) -> None:
    assert last(home, Device(name="desk", host="desk")).user == getpass.getuser()


def test_the_usual_keys_are_tried_when_nobody_names_one(home: Path) -> None:
    for name in ("id_rsa", "id_ecdsa", "id_ed25519"):
        (home / ".ssh" / name).write_text("")
    usual = tuple(home / ".ssh" / name for name in ("id_ed25519", "id_ecdsa", "id_rsa"))
    assert last(home, Device(name="desk", host="d")).identities == usual
    (home / ".ssh" / "id_ecdsa").unlink()
    configure(home, "IdentityFile none\n")
    assert last(home, Device(name="desk", host="d")).identities == usual[::2]


def test_the_first_value_of_a_setting_counts(home: Path) -> None:
    configure(home, "Host desk\n  Port 1\nHost *\n  Port 2\n  User iq\n")
    hop = last(home, Device(name="d", host="desk"))
    assert (hop.port, hop.user) == (1, "iq")


@pytest.mark.parametrize("pattern", ["conf.d/*.conf", "~/.ssh/conf.d/*.conf", "conf.d/a.conf conf.d/b.conf"])
def test_include_is_followed(home: Path, pattern: str) -> None:
    configure(home, f"Include {pattern}\nUser everywhere\nHost *\n  Port 3\n")
    configure(home, "Host desk\n  Port 1\n", "conf.d/a.conf")
    configure(home, "Host desk\n  Port 2\n  HostName 10.0.0.7\n", "conf.d/b.conf")
    hop = last(home, Device(name="d", host="desk"))
    assert (hop.host, hop.port, hop.user) == ("10.0.0.7", 1, "everywhere")
    hop = last(home, Device(name="d", host="gate"))
    assert (hop.host, hop.port, hop.user) == ("gate", 3, "everywhere")


def test_an_include_inside_a_host_block_belongs_to_it(home: Path) -> None:
    configure(home, "Host desk\n  Include common\n  User iq\nHost gate\n  User porter\n")
    configure(home, "Port 5\n", "common")
    assert (last(home, Device(name="d", host="desk")).port, last(home, Device(name="d", host="gate")).port) == (5, 22)
    assert last(home, Device(name="d", host="desk")).user == "iq"


def test_host_blocks_inside_an_include_inside_a_host_block_are_refused(home: Path) -> None:
    configure(home, "Host desk\n  Include more\n")
    configure(home, "Host other\n  Port 5\n", "more")
    with pytest.raises(DeviceError, match="move the Include to the top"):
        hops(home, Device(name="d", host="desk"))


def test_includes_in_a_circle_are_refused(home: Path) -> None:
    configure(home, "Include config\n")
    with pytest.raises(DeviceError, match="Include goes in a circle"):
        flatten(home / ".ssh" / "config", home)


def test_a_broken_config_names_its_file(home: Path) -> None:
    configure(home, "Host desk\n  nonsense\n")
    with pytest.raises(DeviceError, match=r"config: Unparsable line nonsense"):
        hops(home, Device(name="d", host="desk"))


@pytest.mark.parametrize(("host", "jump"), [("desk", None), ("gate", "gate"), ("gate", "gate,inner")])
def test_proxy_command_is_refused_also_of_a_jump_that_models_yaml_names(
    home: Path, host: str, jump: str | None
) -> None:
    configure(home, f"Host {host}\n  ProxyCommand nc %h %p\n")
    with pytest.raises(DeviceError, match="ProxyCommand is not followed"):
        hops(home, Device(name="d", host="desk", proxy_jump=jump))


def test_proxy_command_none_is_no_proxy_command(home: Path) -> None:
    configure(home, "Host desk\n  ProxyCommand none\n")
    assert len(hops(home, Device(name="d", host="desk"))) == 1


def test_jumps_of_the_config_come_first(home: Path) -> None:
    configure(
        home,
        "Host desk\n  ProxyJump porter@gate:2200,inner\n"
        "Host gate\n  HostName 10.0.0.1\n  User x\nHost inner\n  Port 4\n",
    )
    got = [(hop.label, hop.host, hop.port, hop.user) for hop in hops(home, Device(name="d", host="desk", user="iq"))]
    assert got == [
        ("gate", "10.0.0.1", 2200, "porter"),
        ("inner", "inner", 4, getpass.getuser()),
        ("d", "desk", 22, "iq"),
    ]


def test_a_jump_may_have_a_jump(home: Path) -> None:
    configure(home, "Host desk\n  ProxyJump inner\nHost inner\n  ProxyJump outer\n")
    assert [hop.host for hop in hops(home, Device(name="d", host="desk"))] == ["outer", "inner", "desk"]


def test_jumps_in_a_circle_are_refused(home: Path) -> None:
    configure(home, "Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(DeviceError, match="circle"):
        hops(home, Device(name="d", host="a"))


def test_proxy_jump_of_the_device_wins_also_over_a_proxy_command(home: Path) -> None:
    configure(home, "Host desk\n  ProxyCommand nc %h %p\n")
    device = Device(name="d", host="desk", proxy_jump="ssh://me@gate:99", identity="~/.ssh/k")
    jump, _ = hops(home, device)
    assert (jump.host, jump.port, jump.user) == ("gate", 99, "me")
    assert jump.identities == (home / ".ssh" / "k",)


def test_proxy_jump_none_is_a_direct_way(home: Path) -> None:
    configure(home, "Host desk\n  ProxyJump gate\n")
    assert len(hops(home, Device(name="d", host="desk", proxy_jump="none"))) == 1


def test_a_jump_that_is_none_is_an_error(home: Path) -> None:
    with pytest.raises(DeviceError, match="no such jump"):
        hops(home, Device(name="d", host="desk", proxy_jump="a b@c:d"))


def test_an_ipv6_jump_is_understood(home: Path) -> None:
    jump, _ = hops(home, Device(name="d", host="desk", proxy_jump="[fe80::1]:22"))
    assert (jump.host, jump.port) == ("fe80::1", 22)


def test_the_projects_known_hosts_come_first_and_the_configs_follow(home: Path) -> None:
    configure(home, "Host *\n  GlobalKnownHostsFile none\n")
    hop = last(home, Device(name="d", host="desk", known_hosts="pins"))
    assert hop.known_hosts == (home / "project" / "pins", home / ".ssh" / "known_hosts")


def test_several_known_hosts_files_are_split(home: Path) -> None:
    configure(home, "UserKnownHostsFile ~/.ssh/k1 /k2\nGlobalKnownHostsFile none\n")
    hop = last(home, Device(name="d", host="desk"))
    assert hop.known_hosts == (home / "project" / "known_hosts", home / ".ssh" / "k1", Path("/k2"))


def test_pins_go_to_the_projects_file(home: Path) -> None:
    assert pins_file(Device(name="d"), home=home, project=home / "p") == home / "p" / "known_hosts"
    assert pins_file(Device(name="d", known_hosts="~/k"), home=home, project=home / "p") == home / "k"
