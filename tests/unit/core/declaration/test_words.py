"""Refused sources, devices and targets, with line and words."""

from __future__ import annotations

import pytest

from buildlib.core.declaration import names, words
from buildlib.core.declaration.catalog_parser import parse_catalog
from tests.unit.core.declaration.refusals import device, problems, target

SOURCES = {
    "leaves the project": (
        "../x.onnx",
        '3: models.a.source: expected a path inside the project, or an absolute one, got "../x.onnx"',
    ),
    "leaves by a detour": (
        "a/../../x.onnx",
        '3: models.a.source: expected a path inside the project, or an absolute one, got "a/../../x.onnx"',
    ),
    "url as short form": (
        "https://x/y.onnx",
        '3: models.a.source: expected a path; a download is {kind: url, url: ..., sha256: ...}, got "https://x/y.onnx"',
    ),
    "no kind": (
        "{seed: 1}",
        '3: models.a.source: expected kind: path, sample, url or git; did you mean "kind: sample"?',
    ),
    "wrong kind": (
        "{kind: smaple, seed: 1}",
        '3: models.a.source.kind: expected path, sample, url or git, got smaple; did you mean "sample"?',
    ),
    "seed missing": ("{kind: sample}", '3: models.a.source: expected the key "seed", which is missing'),
    "seed negative": (
        "{kind: sample, seed: -1}",
        "3: models.a.source.seed: expected a whole number from 0 to 4294967295, got -1",
    ),
    "hash": (
        "{kind: url, url: 'https://x/y', sha256: abc}",
        '3: models.a.source.sha256: expected a sha256 of 64 hex digits, got "abc"',
    ),
    "scheme": (
        f"{{kind: url, url: 'ftp://x/y', sha256: {'0' * 64}}}",
        '3: models.a.source.url: expected a URL starting with https://, http:// or file://, got "ftp://x/y"',
    ),
    "login in url": (
        f"{{kind: url, url: 'https://u:p@x/y', sha256: {'0' * 64}}}",
        (
            "3: models.a.source.url: expected a URL without user and password; models.yaml holds no secrets, got"
            ' "https://...@x/y"'
        ),
    ),
    "git option": (
        "{kind: git, repository: --upload-pack=x, ref: main, path: a.onnx}",
        (
            "3: models.a.source.repository: expected a repository; git would take this for an option, got"
            ' "--upload-pack=x"'
        ),
    ),
    "git helper": (
        "{kind: git, repository: 'ext::sh -c x', ref: main, path: a.onnx}",
        (
            "3: models.a.source.repository: expected a repository; git would run a helper program for this one, got"
            ' "ext::sh -c x"'
        ),
    ),
    "git host option": (
        "{kind: git, repository: 'ssh://-oProxyCommand=x/y', ref: main, path: a.onnx}",
        (
            "3: models.a.source.repository: expected a repository; ssh would take this host for an option, got"
            ' "ssh://-oProxyCommand=x/y"'
        ),
    ),
    "git ref option": (
        "{kind: git, repository: 'https://x/y', ref: -x, path: a.onnx}",
        '3: models.a.source.ref: expected a branch, tag or commit as git names them, got "-x"',
    ),
    "git path": (
        "{kind: git, repository: 'https://x/y', ref: main, path: a/../../b}",
        '3: models.a.source.path: expected a path without .., got "a/../../b"',
    ),
    "git absolute path": (
        "{kind: git, repository: 'https://x/y', ref: main, path: /b}",
        '3: models.a.source.path: expected a relative path with /, got "/b"',
    ),
    "a list": ("[a]", "3: models.a.source: expected text, got a list"),
    "nothing in quotes": ('""', '3: models.a.source: expected a path, got ""'),
}


@pytest.mark.parametrize("case", SOURCES)
def test_a_wrong_source_is_named_with_its_line(case: str) -> None:
    source, expected = SOURCES[case]
    assert problems(f"models:\n  a:\n    source: {source}\n    artifact: a.pkl\n") == (f"models.yaml:{expected}",)


GOOD_URLS = ["https://example.com/a%20b.onnx", "http://127.0.0.1:8000/x", "file:///Volumes/share/x.onnx"]
BAD_URLS = [
    "file://",
    "file://host",
    "https://",
    "https:///x",
    "https://x:port/y",
    "https://x/a b",
    "https://[x/y",
    "x.onnx",
]
GOOD_REPOSITORIES = ["https://x/y.git", "ssh://git@x:22/y", "git@x:y.git", "file:///x", "/x", "~/x", "sub/x"]
BAD_REPOSITORIES = ["", "-x", "ext::x", "fd::17", "ftp://x/y", "https://u:p@x/y", "ssh://-x/y", "-x@y:z", "../x"]


def test_urls_that_can_be_fetched_are_taken_and_others_are_not() -> None:
    assert [text for text in GOOD_URLS if words.url(text)] == []
    assert [text for text in BAD_URLS if not words.url(text)] == []


def test_paths_that_stay_in_the_project_or_are_absolute_are_taken_and_others_are_not() -> None:
    good = ["x", "a/../x", "./a/./../x", "a//b", "/x/../y", "~/x", "a b/é.onnx"]
    bad = ["", "..", "./../x", "a/./../../x", "a//../../x", "~root/x", "-x", "a\nb", "a\0b"]
    assert [text for text in good if names.local_path(text)] == []
    assert [text for text in bad if not names.local_path(text)] == []


def test_repositories_that_git_may_fetch_from_are_taken_and_others_are_not() -> None:
    assert [text for text in GOOD_REPOSITORIES if words.git_repository(text)] == []
    assert [text for text in BAD_REPOSITORIES if not words.git_repository(text)] == []


DEVICES = {
    "no host": ("user: iq", '2: devices.desk: expected the key "host", which is missing'),
    "user in host": (
        "host: iq@desk",
        '3: devices.desk.host: expected a host alone; the user goes in user:, got "iq@desk"',
    ),
    "host like an option": (
        "host: -oProxyCommand=x",
        '3: devices.desk.host: expected a host name or address, got "-oProxyCommand=x"',
    ),
    "port": ("host: x\nport: 70000", "4: devices.desk.port: expected a whole number from 1 to 65535, got 70000"),
    "transport": (
        "host: x\ntransport: shh",
        '4: devices.desk.transport: expected local or ssh, got shh; did you mean "ssh"?',
    ),
    "local with host": (
        "transport: local\nhost: x",
        '4: devices.desk.host: expected no such key where transport is local, got "x"',
    ),
    "passphrase": (
        "host: x\npassphrase: y",
        (
            '4: devices.desk: key "passphrase" is refused: models.yaml holds no secrets; use a key file'
            " (identity) or the"
            " agent"
        ),
    ),
    "device path": (
        "host: x\npaths: {models: models}",
        '4: devices.desk.paths.models: expected an absolute path on the device, got "models"',
    ),
    "device path going up": (
        "host: x\npaths: {models: /data/../etc}",
        '4: devices.desk.paths.models: expected a path without .., got "/data/../etc"',
    ),
    "relative root over ssh": (
        "host: x\npaths: {root: here}",
        '4: devices.desk.paths.root: expected an absolute path on the device, got "here"',
    ),
    "root outside": (
        "transport: local\npaths: {root: ../x}",
        '4: devices.desk.paths.root: expected a path inside the project, or an absolute one, got "../x"',
    ),
    "timeout": (
        "host: x\ntimeouts: {idle: 0}",
        "4: devices.desk.timeouts.idle: expected a number of seconds above 0, got 0",
    ),
    "timeout not finite": (
        "host: x\ntimeouts: {idle: .inf}",
        "4: devices.desk.timeouts.idle: expected a number of seconds above 0, got .inf",
    ),
    "profile": (
        "host: x\nprofile: gpu",
        '4: devices.desk.profile: expected one of qcom, egpu, cpu, got "gpu"; did you mean "egpu"?',
    ),
    "script": (
        "host: x\ncompile_script: compile.py",
        '4: devices.desk.compile_script: expected builtin, or an absolute path on the device, got "compile.py"',
    ),
    "proxy jump": (
        "host: x\nproxy_jump: a b",
        '4: devices.desk.proxy_jump: expected [user@]host[:port], several by commas, got "a b"',
    ),
    "key file of another": (
        "host: x\nidentity: ~root/.ssh/id",
        (
            "4: devices.desk.identity: expected a path; of home directories only your own (~/) is known, got"
            ' "~root/.ssh/id"'
        ),
    ),
    "home without HOME": (
        "host: x\nidentity: ~/.ssh/id",
        '4: devices.desk.identity: expected an absolute path (HOME is not set, so ~ is nowhere), got "~/.ssh/id"',
    ),
}


@pytest.mark.parametrize("key", ["port: 22", "user: iq", "identity: a", "known_hosts: a", "proxy_jump: a"])
def test_where_transport_is_local_no_key_of_ssh_is_passed_over(key: str) -> None:
    (problem,) = problems(device(f"transport: local\n{key}"))
    assert "expected no such key where transport is local" in problem


@pytest.mark.parametrize("case", DEVICES)
def test_a_wrong_device_is_named_with_its_line(case: str) -> None:
    keys, expected = DEVICES[case]
    assert problems(device(keys)) == (f"models.yaml:{expected}",)


def test_the_built_in_device_stays_local() -> None:
    text = "devices:\n  local:\n    transport: ssh\n    host: x\nmodels: {}\n"
    expected = "models.yaml:3: devices.local.transport: expected local, for the built-in device of that name, got ssh"
    assert problems(text) == (expected,)


TARGETS = {
    "no repository": ("branch: main", '2: targets.iq: expected the key "repository", which is missing'),
    "repository by URL": (
        "repository: https://x/y",
        '3: targets.iq.repository: expected a path on this machine, not a URL, got "https://x/y"',
    ),
    "repository outside": (
        "repository: ../IQModels",
        '3: targets.iq.repository: expected a path inside the project, or an absolute one, got "../IQModels"',
    ),
    "hugging face": (
        "kind: huggingface\nrepository: models",
        '4: targets.iq.repository: expected OWNER/NAME of a Hugging Face repository, got "models"',
    ),
    "manifest outside": (
        "repository: x\nmanifests: [../m.json]",
        '4: targets.iq.manifests.0: expected a path without .., got "../m.json"',
    ),
    "directory placeholder": (
        'repository: x\ndirectory: "models/{fodler}"',
        (
            "4: targets.iq.directory: expected placeholders out of {name}, {display_name}, {folder}, {artifact},"
            ' {branch}, got "models/{fodler}"'
        ),
    ),
    "message attribute": (
        'repository: x\nmessage: "{name.__class__}"',
        (
            "4: targets.iq.message: expected placeholders out of {name}, {display_name}, {folder}, {artifact},"
            ' {branch}, {directory}, {changes}, got "{name.__class__}"'
        ),
    ),
    "path in a directory": (
        'repository: x\ndirectory: "{path}"',
        (
            "4: targets.iq.directory: expected placeholders out of {name}, {display_name}, {folder}, {artifact},"
            ' {branch}, got "{path}"'
        ),
    ),
    "changes in a URL": (
        'repository: x\nurl: "https://x/{changes}"',
        (
            "4: targets.iq.url: expected placeholders out of {name}, {display_name}, {folder}, {artifact}, {branch},"
            ' {directory}, {path}, got "https://x/{changes}"'
        ),
    ),
    "message braces": (
        'repository: x\nmessage: "{name"',
        '4: targets.iq.message: expected text with {placeholders}; {{ and }} stand for braces, got "{name"',
    ),
    "branch": (
        "repository: x\nbranch: a..b",
        '4: targets.iq.branch: expected a branch, tag or commit as git names them, got "a..b"',
    ),
    "author": (
        "repository: x\nauthor: ada",
        '4: targets.iq.author: expected an author such as "Ada Lovelace <ada@example.com>", got "ada"',
    ),
    "policy": ("repository: x\npolicy: [roadtest]", "4: targets.iq.policy.0: expected harness or onroad, got roadtest"),
    "token": (
        "repository: x\ntoken: y",
        '4: targets.iq: key "token" is refused: models.yaml holds no secrets; use a key file (identity) or the agent',
    ),
}


@pytest.mark.parametrize("case", TARGETS)
def test_a_wrong_target_is_named_with_its_line(case: str) -> None:
    keys, expected = TARGETS[case]
    assert problems(target(keys)) == (f"models.yaml:{expected}",)


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        ("sandbox: true", "", 'a target with the same `sandbox`, got "hub"'),
        ("sandbox: false", "sandbox: true", 'a target with the same `sandbox`, got "hub"'),
        ("sandbox: true", "sandbox: true", None),
        ("sandbox: false", "", None),
        ("sandbox: false", "files: third", 'a target that takes artifacts itself, got "hub"'),
    ],
)
def test_another_target_for_the_artifacts_takes_them_itself_and_is_no_less_a_sandbox(
    own: str, others: str, expected: str | None
) -> None:
    text = (
        f"targets:\n  iq: {{repository: x, files: hub, {own}}}\n  hub: {{repository: hub, {others}}}\n"
        "  third: {repository: z}\nmodels: {}\n"
    )
    if expected is None:
        assert parse_catalog(text, path="models.yaml", environ={}).targets["iq"].files == "hub"
    else:
        assert problems(text) == (f"models.yaml:2: targets.iq.files: expected {expected}",)


@pytest.mark.parametrize(
    ("manifests", "succeeds", "good"),
    [("", "[a.json]", False), ("", "[a.json, b.json]", True), ("[c.json]", "[a.json]", True), ("[c.json]", "[]", True),
     ("[c.json]", "[a.json, b.json]", False)],
)  # fmt: skip
def test_a_catalog_succeeds_as_many_manifests_as_it_has(manifests: str, succeeds: str, good: bool) -> None:
    own = f"manifests: {manifests}, " if manifests else ""
    text = f"targets:\n  iq: {{repository: x, {own}succeeds: {succeeds}}}\nmodels: {{}}\n"
    if good:
        parse_catalog(text, path="models.yaml", environ={})
    else:
        (problem,) = problems(text)
        assert "succeeds: expected as many as manifests, in the same order" in problem


@pytest.mark.parametrize(
    "name",
    ["HOME", "XDG_CACHE_HOME", "UV_CACHE_DIR", "TMPDIR", "PATH", "VIRTUAL_ENV", "CC", "CACHEDB", "SHELL", "IFS", "ENV",
     "BASH_ENV", "PYTHONPATH", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "SUDO_USER", "GIT_DIR", "SSH_AUTH_SOCK", "path"],
)  # fmt: skip
def test_no_flag_sets_what_the_build_itself_sets(name: str) -> None:
    assert words.flag_name(name) == "a flag; the build itself sets this variable (guide, section 5)"
