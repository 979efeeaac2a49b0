"""Files of ~/.ssh/config as nobody should write them: followed as OpenSSH would, or an error in a line."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from buildlib.core.catalog import Device
from buildlib.errors import DeviceError
from buildlib.transports.ssh_config import Hop, route


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    return home


def last(home: Path, text: str, **device: object) -> Hop:
    (home / ".ssh" / "config").write_bytes(text.encode("utf-8", "surrogateescape"))
    return route(Device(name="desk", host="desk.lan", **device), home=home, project=home)[-1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "match",
    [
        'exec "touch {}"',
        'host desk.lan exec "touch {}"',
        'host=desk.lan exec="touch {}"',
        'all\n User x\nMatch exec "touch {}" host desk.lan',
        '!exec "touch {}"',
        'EXEC "touch {}"',
        'host desk.lan exec "touch {}"\n Include more',
    ],
)
def test_no_program_is_run_for_a_match(home: Path, match: str) -> None:
    (home / ".ssh" / "more").write_text("Port 23\n")
    proof = home / "executed"
    with pytest.raises(DeviceError, match="a Match is not followed"):
        last(home, f"Match {match.format(proof)}\n  User evil\n")
    assert not proof.exists()


def test_a_match_that_cannot_concern_the_host_does_no_harm(home: Path) -> None:
    proof = home / "executed"
    text = f'Match host other exec "touch {proof}"\n  User evil\nMatch !host desk.lan tagged x\n  User evil\n'
    assert last(home, f"{text}Host *\n  User iq\n").user == "iq"
    assert not proof.exists()


@pytest.mark.parametrize(
    "criterion", ["tagged work", "localnetwork 10.0.0.0/8", "sessiontype shell", "version OpenSSH_*"]
)
def test_a_criterion_that_is_not_judged_is_not_taken_for_fulfilled(home: Path, criterion: str) -> None:
    with pytest.raises(DeviceError, match="a Match is not followed") as caught:
        last(home, f"Match {criterion}\n  HostName another.host\n")
    assert criterion.partition(" ")[0] in caught.value.render()


def test_match_user_sees_the_user_of_models_yaml(home: Path) -> None:
    text = "Match user iq\n  Port 2222\nMatch user root\n  Port 2223\n"
    assert last(home, text, user="iq").port == 2222
    assert last(home, f"User other\n{text}", user="iq").port == 2222


def test_tokens_see_the_port_and_user_of_models_yaml(home: Path) -> None:
    hop = last(home, "IdentityFile ~/.ssh/%r@%h\n", user="iq", port=23)
    assert [path.name for path in hop.identities] == ["iq@desk.lan"]
    digest = "IdentityFile ~/.ssh/%C\n"
    assert last(home, digest, user="iq", port=23) == last(home, f"User iq\nPort 23\n{digest}")
    assert last(home, digest, user="iq", port=23) != last(home, digest, user="iq")


@pytest.mark.parametrize("user", ['"iq', "iq\nHostName evil.lan"])
def test_a_user_of_models_yaml_is_never_read_as_lines_of_the_config(home: Path, user: str) -> None:
    hop = last(home, "", user=user)
    assert (hop.user, hop.host) == (user, "desk.lan")


def test_match_localuser_is_judged(home: Path) -> None:
    text = f"Match localuser {getpass.getuser()}\n  Port 2222\nMatch localuser somebody-else\n  User evil\n"
    hop = last(home, f"{text}Host *\n  User iq\n")
    assert (hop.port, hop.user) == (2222, "iq")


@pytest.mark.parametrize(
    "text",
    [
        "Port abc\n",
        "Port 0\n",
        "Port 99999\n",
        "Port -1\n",
        "Port ²\n",
        'UserKnownHostsFile "a b\n',
        'GlobalKnownHostsFile "a\n',
        'Include "abc\n',
        'Match host "a\n',
        "Match\n",
        "Match all host x\n",
        "CanonicalizeHostname yes\n",
        "CanonicalizeHostname yes\nCanonicalDomains nowhere.invalid\nCanonicalizeMaxDots abc\n",
        "CanonicalizeHostname yes\nCanonicalDomains nowhere.invalid\nCanonicalizeFallbackLocal no\n",
        "ProxyJump a:99999\n",
        "ProxyJump a:0\n",
        'ProxyJump ""\n',
        "ProxyJump a,,b\n",
        "\udcff\udcfe\0\n",
        "\ufeffUser joe\n",
    ],
)
def test_a_broken_setting_is_an_error_in_a_line_and_no_crash(home: Path, text: str) -> None:
    with pytest.raises(DeviceError) as caught:
        last(home, text)
    assert caught.value.headline().isprintable()


@pytest.mark.parametrize("include", ["/", '""', "~/.ssh", "~nobody/x"])
def test_an_include_of_no_file_has_no_lines(home: Path, include: str) -> None:
    assert last(home, f"Include {include}\nUser iq\n").user == "iq"
