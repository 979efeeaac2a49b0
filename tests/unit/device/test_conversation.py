from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildlib import errors
from buildlib.device.bundle import BOOT, framed_sources
from buildlib.device.conversation import Conversation, error_of, silence_of


def line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


@given(body=st.binary(max_size=300), cuts=st.lists(st.integers(1, 40), max_size=60), noise=st.binary(max_size=30))
def test_however_the_bytes_are_cut_events_body_and_answer_come_out_whole(body: bytes, cuts: list[int], noise: bytes):
    whole = noise.replace(b"\n", b" ") + b"\n" + line({"event": "beat"}) + line({"event": "log", "n": 1})
    whole += line({"event": "body", "length": len(body)}) + body + line({"event": "tick"}) + line({"ok": {"a": 1}})
    events: list[dict] = []
    got = bytearray()
    talk = Conversation(events.append, got.extend, asked=len(body))
    for size in [*cuts, len(whole)]:
        talk.feed(whole[:size])
        whole = whole[size:]
    assert bytes(got) == body
    assert [event["event"] for event in events] == ["log", "tick"]
    assert talk.answer == {"ok": {"a": 1}}


def test_an_answer_that_never_came_is_none():
    talk = Conversation()
    talk.feed(b'{"ok": {}}')
    assert talk.answer is None


@pytest.mark.parametrize(
    "said",
    [
        {"event": "body", "length": 11},
        {"event": "body", "length": -3},
        {"event": "body", "length": 10_000_000_000},
        {"event": "body", "length": 1e400},
        {"event": "body", "length": True},
        {"event": "body", "length": "9"},
        {"event": "body"},
        {"event": "log"},
        {"event": "log", "offset": "x", "data": "!"},
        {"error": "text"},
        {"error": None},
        {"ok": [1]},
        {"ok": None},
    ],
)
def test_a_lie_about_a_length_or_a_kind_is_an_error_of_the_device(said: dict[str, object]):
    def event(message: dict) -> None:
        int(message["offset"])

    got = bytearray()
    talk = Conversation(event, got.extend, asked=10)
    with pytest.raises(errors.DeviceError, match="cannot be understood"):
        talk.feed(line(said) + b"x" * 100 + b"\n")
    assert not got


def test_two_bodies_are_no_more_than_was_asked_for():
    got = bytearray()
    talk = Conversation(None, got.extend, asked=10)
    talk.feed(line({"event": "body", "length": 6}) + b"x" * 6)
    with pytest.raises(errors.DeviceError):
        talk.feed(line({"event": "body", "length": 6}) + b"y" * 6)
    assert bytes(got) == b"x" * 6


def test_a_body_that_nobody_asked_for_is_refused():
    with pytest.raises(errors.DeviceError):
        Conversation().feed(line({"event": "body", "length": 1}) + b"x")


@pytest.mark.parametrize("noise", [b"y\n", b"\n", b"[]\n", b'{"motd": 1}\n', b"0\n"])
def test_noise_of_a_login_script_is_passed_over_and_noise_without_end_is_not(noise: bytes):
    talk = Conversation()
    talk.feed(noise * 100)
    assert talk.answer is None
    with pytest.raises(errors.DeviceError, match="noise without end"):
        talk.feed(noise * (2_000_000 // len(noise)))


def test_what_looks_like_an_answer_of_a_login_script_is_none():
    talk = Conversation()
    talk.feed(line({"ok": {"a": 1}}) + line({"motd": "welcome"}))
    assert talk.answer == {"ok": {"a": 1}}


def test_nothing_that_a_device_says_moves_the_terminals_cursor():
    evil = "a\x1b[2J\x1b]0;owned\x07b\r\x9b1Ac\u202ed"
    events: list[dict] = []
    talk = Conversation(events.append)
    talk.feed(line({"event": "waiting", "holder": evil}) + line({"ok": {"text": ["1\n2", evil]}}))
    assert talk.answer == {"ok": {"text": ["1\n2", "ab\\r\\x9b1Ac\\u202ed"]}}
    assert events[0]["holder"] == "ab\\r\\x9b1Ac\\u202ed"
    text = error_of({"what": "w\n  try   rm -rf /", "got": evil, "where": evil, "expected": 7}, "desk").render()
    assert text.splitlines() == [text]
    assert text.isprintable()
    assert silence_of("desk", 9, evil.encode(), "python").render().replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("rail", errors.RailRefused),
        ("busy", errors.DeviceBusy),
        ("input_changed", errors.InputChanged),
        ("transfer", errors.TransferFailed),
        ("device", errors.DeviceError),
        ("internal", errors.DeviceError),
        ("of a later version", errors.DeviceError),
    ],
)
def test_the_agents_errors_are_the_builds_own(kind: str, error: type[errors.BuildError]):
    value = {"kind": kind, "what": "w", "where": "/p", "expected": "e", "got": "g", "remedy": "r"}
    made = error_of(value, "desk")
    assert type(made) is error
    assert made.render() == "desk:/p: w: expected e, got g\n  try   r"


@pytest.mark.parametrize(
    ("status", "stderr", "error", "says"),
    [
        (1, b"sudo: a password is required\n", errors.DeviceError, "sudo"),
        (127, b"sh: python: not found\n", errors.DeviceError, "paths.venv"),
        (1, b"sudo: /venv/bin/python: command not found\n", errors.DeviceError, "paths.venv"),
        (137, b"", errors.ConnectionLost, "137"),
        (1, b'  File "<string>"\nSyntaxError: invalid syntax\n', errors.DeviceError, "SyntaxError"),
    ],
)
def test_silence_is_explained(status: int, stderr: bytes, error: type[errors.BuildError], says: str):
    made = silence_of("desk", status, stderr, "/venv/bin/python")
    assert type(made) is error
    assert says in made.render()


def test_the_agent_is_python_39_and_imports_nothing_that_a_device_may_lack():
    import ast
    import sys
    import zlib

    framed = framed_sources()
    sources = json.loads(zlib.decompress(framed.partition(b"\n")[2]))
    assert sources.pop("boot") == BOOT
    for name, text in sources.items():
        tree = ast.parse(text, feature_version=(3, 9))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= set(sys.stdlib_module_names), name
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert (node.module or "").partition(".")[0] in sys.stdlib_module_names, name
