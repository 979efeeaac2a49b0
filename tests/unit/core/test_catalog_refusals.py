"""Every refusal of models.yaml, with its line and its words."""

from __future__ import annotations

import pytest

from buildlib.core.catalog_parser import decode_catalog, parse_catalog
from buildlib.core.names import COMMANDS, DOIT_COMMANDS, STAGES
from buildlib.errors import EXIT_CATALOG, CatalogError

SAMPLE = "source: {kind: sample, seed: 1}"
MODEL = f"display_name: M, {SAMPLE}, artifact: m.pkl"


def problems(text: str, environ: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(CatalogError) as caught:
        parse_catalog(text, path="models.yaml", environ=environ or {})
    return caught.value.problems


def model(keys: str) -> str:
    """A file with one good model and, from line 3 on, more of its keys."""
    lines = "".join(f"    {line}\n" for line in keys.splitlines())
    return f"models:\n  nopp:\n{lines}    {SAMPLE}\n" + ("" if "artifact" in keys else "    artifact: nopp.pkl\n")


def device(keys: str) -> str:
    """A device `desk`, its keys from line 3 on."""
    return "devices:\n  desk:\n" + "".join(f"    {line}\n" for line in keys.splitlines()) + "models: {}\n"


def target(keys: str) -> str:
    """A target `iq`, its keys from line 3 on."""
    return "targets:\n  iq:\n" + "".join(f"    {line}\n" for line in keys.splitlines()) + "models: {}\n"


WHOLE_FILE = {
    "empty": ("", "models.yaml: expected models, devices and so on, got an empty file"),
    "only comments": ("# nothing\n\n", "models.yaml: expected models, devices and so on, got an empty file"),
    "a word": ("models", "models.yaml:1: expected keys such as models:, got models"),
    "a list": ("- a", "models.yaml:1: expected keys such as models:, got a list"),
    "no models": ("devices:\n", 'models.yaml:1: expected the key "models", which is missing'),
    "models with nothing": ("models:\n", "models.yaml:1: models: expected a mapping of names, got nothing"),
    "huge": ("#" * (4 * 1024 * 1024 + 1), "models.yaml: expected at most 4,194,304 characters, got 4,194,305"),
    "NUL": ("models: {}\n# \0", "models.yaml:2: expected printable characters, got U+0000"),
    "escape character": ("\nmodels: \x1b[1m", "models.yaml:2: expected printable characters, got U+001B"),
    "lone surrogate": ("models: \ud800", "models.yaml:1: expected printable characters, got U+D800"),
    "tab": ("models:\n\tnopp: 1", "models.yaml:2: expected spaces before a key, got a tab"),
    "broken YAML": (
        "models: [1,\n",
        "models.yaml:2: no YAML: while parsing a flow node did not find expected node content",
    ),
    "second document": ("models: {}\n---\nmodels: {}\n", "models.yaml:2: expected one document, got a second ---"),
    "duplicate section": ("models: {}\nmodels: {}", 'models.yaml:2: key "models" is here twice, first in line 1'),
    "unknown section": ("modles: {}\nmodels: {}", 'models.yaml:1: unknown key "modles"; did you mean "models"?'),
    "deep": ("models: " + "{a: " * 30, "models.yaml:1: more than 20 levels deep"),
    "unknown alias": ("models: *x", "models.yaml:1: models: alias *x stands for nothing before it"),
    "recursive alias": ("models: &x\n  a: *x", "models.yaml:2: models.a: alias *x holds itself"),
    "tag": (
        "models: !!python/object/apply:os.system ['true']",
        'models.yaml:1: models: YAML tags such as "tag:yaml.org,2002:python/object/apply:os.system" are not used here',
    ),
    "list as key": ("? [a]\n: 1", "models.yaml:1: expected a word as a key, got a list or a mapping"),
    "invisible key": (
        'models:\n  "no\u200bpp": {}',
        'models.yaml:2: models: expected a key of printable characters, got "no\\u200bpp"',
    ),
}


@pytest.mark.parametrize("case", WHOLE_FILE)
def test_a_file_that_is_no_catalog_is_named_with_its_line(case: str) -> None:
    text, expected = WHOLE_FILE[case]
    assert problems(text)[0] == expected


def test_bytes_that_are_no_utf8_are_named_with_their_line() -> None:
    with pytest.raises(CatalogError) as caught:
        decode_catalog(b"models:\n  a: \xff", path="models.yaml")
    assert caught.value.problems == ("models.yaml:2: expected UTF-8 text, got the byte 0xff",)


def test_a_byte_order_mark_and_crlf_change_nothing() -> None:
    text = model("frame_skip: 2")
    plain = parse_catalog(text, path="m", environ={})
    assert parse_catalog("\ufeff" + text.replace("\n", "\r\n"), path="m", environ={}) == plain


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))
    found = problems(f"a0: &a0 [x]\n{levels}\n")
    assert "more than 500,000 values" in found[-1]


KEYS = {
    # key lines (from line 3), problem
    "artifact with a folder": (
        "artifact: out/nopp.pkl",
        '3: models.nopp.artifact: expected a bare file name ending in .pkl, got "out/nopp.pkl"',
    ),
    "artifact with a backslash": (
        "artifact: out\\nopp.pkl",
        '3: models.nopp.artifact: expected a bare file name ending in .pkl, got "out\\nopp.pkl"',
    ),
    "artifact of another kind": (
        "artifact: nopp.onnx",
        '3: models.nopp.artifact: expected a bare file name ending in .pkl, got "nopp.onnx"',
    ),
    "artifact on Windows": (
        "artifact: nul.pkl",
        '3: models.nopp.artifact: expected a file name that Windows disks can keep, got "nul.pkl"',
    ),
    "artifact like an option": (
        "artifact: -x.pkl",
        "3: models.nopp.artifact: expected a file name that does not start with -, . or a space, nor end with . or a"
        ' space, got "-x.pkl"',
    ),
    "artifact written backwards": (
        'artifact: "a\\u202egpj.pkl"',
        "3: models.nopp.artifact: expected a file name of printable characters (it holds U+202E), got"
        ' "a\\u202egpj.pkl"',
    ),
    "artifact with a newline": (
        'artifact: "a\\nb.pkl"',
        '3: models.nopp.artifact: expected a file name of printable characters (it holds U+000A), got "a\\nb.pkl"',
    ),
    "artifact decomposed": (
        "artifact: e\u0301.pkl",
        "3: models.nopp.artifact: expected a file name in composed unicode (NFC), as Mac disks would rename it, got"
        ' "e\u0301.pkl"',
    ),
    "artifact too long": (
        f"artifact: {'é' * 90}.pkl",
        f'3: models.nopp.artifact: expected a file name of at most 180 bytes, got "{"é" * 60}..."',
    ),
    "artifact with a star": (
        "artifact: a*.pkl",
        '3: models.nopp.artifact: expected a file name without *, got "a*.pkl"',
    ),
    "folder that is a path": ("folder: ../x", '3: models.nopp.folder: expected a bare file name, got "../x"'),
    "display name that is no folder": (
        "display_name: A/B",
        '3: models.nopp: expected folder: a bare file name, since the display name "A/B" is none',
    ),
    "unknown key": ("frameskip: 4", '3: models.nopp: unknown key "frameskip"; did you mean "frame_skip"?'),
    "unknown key with a dash": (
        "frame-skip: 4",
        '3: models.nopp: unknown key "frame-skip"; did you mean "frame_skip"?',
    ),
    "unknown key like nothing": ("zzz: 4", '3: models.nopp: unknown key "zzz"'),
    "key twice": (
        "frame_skip: 4\nframe_skip: 2",
        '4: models.nopp: key "frame_skip" is here twice, first in line 3',
    ),
    "merge key": (
        "<<: {frame_skip: 2}",
        "3: models.nopp: merge keys (<<) are not used here; use defaults or a profile",
    ),
    "flag yes": (
        "flags:\n  IMAGE: yes",
        '4: models.nopp.flags.IMAGE: expected the exact text, "yes" in quotes or 1, got yes, which is a boolean in YAML',
    ),
    "flag Off": (
        "flags:\n  IMAGE: Off",
        '4: models.nopp.flags.IMAGE: expected the exact text, "Off" in quotes or 0, got Off, which is a boolean in YAML',
    ),
    "flag true": (
        "flags:\n  IMAGE: true",
        '4: models.nopp.flags.IMAGE: expected the exact text, "true" in quotes or 1, got true, which is a boolean in YAML',
    ),
    "flag with nothing": (
        "flags:\n  IMAGE:",
        '4: models.nopp.flags.IMAGE: expected a value ("" is empty text), got nothing',
    ),
    "flag list": (
        "flags:\n  IMAGE: [2]",
        "4: models.nopp.flags.IMAGE: expected one value (text or number), got a list",
    ),
    "flag mapping": (
        "flags:\n  IMAGE: {a: 2}",
        "4: models.nopp.flags.IMAGE: expected one value (text or number), got a mapping",
    ),
    "flag name": (
        "flags:\n  2X: 1",
        '4: models.nopp.flags.2X: expected a flag\'s name: letters, digits and _, not starting with a digit, got "2X"',
    ),
    "flag of the environment": (
        "flags:\n  PATH: /x",
        "4: models.nopp.flags.PATH: expected a flag; the build itself sets this variable (guide, section 5), got"
        ' "PATH"',
    ),
    "flag with a newline": (
        'flags:\n  DEV: "a\\nb"',
        '4: models.nopp.flags.DEV: expected one line of printable text (it holds U+000A), got "a\\nb"',
    ),
    "frame skip octal": (
        "frame_skip: 010",
        "3: models.nopp.frame_skip: expected a whole number from 1 to 100, got 010",
    ),
    "frame skip quoted": (
        'frame_skip: "4"',
        '3: models.nopp.frame_skip: expected a whole number from 1 to 100, got "4"',
    ),
    "frame skip zero": ("frame_skip: 0", "3: models.nopp.frame_skip: expected a whole number from 1 to 100, got 0"),
    "frame skip float": (
        "frame_skip: 4.0",
        "3: models.nopp.frame_skip: expected a whole number from 1 to 100, got 4.0",
    ),
    "frame skip missing": (
        "frame_skip:",
        "3: models.nopp.frame_skip: expected a whole number from 1 to 100, got nothing",
    ),
    "size": ("model_size: 512", '3: models.nopp.model_size: expected WIDTHxHEIGHT in pixels, like 512x256, got "512"'),
    "odd size": ("model_size: 511x256", '3: models.nopp.model_size: expected an even width and height, got "511x256"'),
    "no camera": (
        "camera_resolutions: []",
        "3: models.nopp.camera_resolutions: expected at least 1 item, got a list that is empty",
    ),
    "camera twice": (
        "camera_resolutions:\n- 1344x760\n- 1344x760",
        "5: models.nopp.camera_resolutions.1: expected each item once, got 1344x760",
    ),
    "camera no list": (
        "camera_resolutions: 1344x760",
        "3: models.nopp.camera_resolutions: expected a list, [in, brackets] or one - a line, got 1344x760",
    ),
    "boolean yes": ("strict_flags: yes", "3: models.nopp.strict_flags: expected true or false, got yes"),
    "text yes": (
        "display_name: yes",
        '3: models.nopp.display_name: expected text, "yes" in quotes, got yes, which is a boolean in YAML',
    ),
    "kind": (
        "kind: vision_polcy",
        "3: models.nopp.kind: expected supercombo, vision_multi_policy or vision_policy, got vision_polcy; did you"
        ' mean "vision_policy"?',
    ),
    "unknown profile": (
        "profile: qcmo",
        '3: models.nopp.profile: expected one of qcom, cpu, got "qcmo"; did you mean "qcom"?',
    ),
    "unknown device": ("device: desk", '3: models.nopp.device: expected one of local, got "desk"'),
    "unknown target": ("target: iq", '3: models.nopp.target: expected a name under targets:, which is empty, got "iq"'),
    "tags of no device": ("tags: [gpu]", "3: models.nopp.tags: expected tags that some device has all of, got gpu"),
    "device and tags": ("device: local\ntags: [gpu]", "4: models.nopp.tags: expected either device or tags, got both"),
    "artifact and artifacts": (
        "artifact: a.pkl\nartifacts: {supercombo: b.pkl}",
        "4: models.nopp.artifacts: expected either artifact or artifacts, got both",
    ),
    "wrong role": (
        "artifacts: {vision: b.pkl, supercombo: a.pkl}",
        '3: models.nopp.artifacts.vision: expected supercombo, since kind is supercombo, got "vision"',
    ),
    "role of nothing": (
        "artifacts: {supercmbo: b.pkl}",
        "3: models.nopp.artifacts.supercmbo: expected combined, off_policy, on_policy, policy, supercombo or vision, got"
        ' "supercmbo"; did you mean "supercombo"?',
    ),
    "expected device": (
        "expected_device: qcom gpu",
        '3: models.nopp.expected_device: expected a tinygrad device such as QCOM or CPU, got "qcom gpu"',
    ),
    "bundle without name": (
        "bundle: {ref: x}",
        '3: models.nopp.bundle: expected the key "short_name", which is missing',
    ),
    "generation": (
        "bundle: {short_name: x, generation: 4a}",
        '3: models.nopp.bundle.generation: expected digits, got "4a"',
    ),
    "was itself": ("was: nopp", '3: models.nopp.was: expected a name that no model has now, got "nopp"'),
    "unset variable": (
        "display_name: ${NAME}",
        "3: models.nopp.display_name: expected the environment variable NAME to be set, or ${NAME:-a default}",
    ),
    "unclosed variable": (
        "display_name: ${NAME",
        '3: models.nopp.display_name: expected ${VAR} or ${VAR:-default} ($$ is a $), got "${NAME"',
    ),
    "password": (
        "password: x",
        '3: models.nopp: key "password" is refused: models.yaml holds no secrets; use a key file (identity) or the agent',
    ),
}


@pytest.mark.parametrize("case", KEYS)
def test_a_wrong_key_of_a_model_is_named_with_its_line(case: str) -> None:
    keys, expected = KEYS[case]
    assert f"models.yaml:{expected}" in problems(model(keys))


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
        "3: models.a.source.url: expected a URL without user and password; models.yaml holds no secrets, got"
        ' "https://u:p@x/y"',
    ),
    "git option": (
        "{kind: git, repository: --upload-pack=x, ref: main, path: a.onnx}",
        "3: models.a.source.repository: expected a repository; git would take this for an option, got"
        ' "--upload-pack=x"',
    ),
    "git helper": (
        "{kind: git, repository: 'ext::sh -c x', ref: main, path: a.onnx}",
        "3: models.a.source.repository: expected a repository; git would run a helper program for this one, got"
        ' "ext::sh -c x"',
    ),
    "git host option": (
        "{kind: git, repository: 'ssh://-oProxyCommand=x/y', ref: main, path: a.onnx}",
        "3: models.a.source.repository: expected a repository; ssh would take this host for an option, got"
        ' "ssh://-oProxyCommand=x/y"',
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
        '4: devices.desk: key "passphrase" is refused: models.yaml holds no secrets; use a key file (identity) or the'
        " agent",
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
    "profile": ("host: x\nprofile: gpu", '4: devices.desk.profile: expected one of qcom, cpu, got "gpu"'),
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
        "4: devices.desk.identity: expected a path; of home directories only your own (~/) is known, got"
        ' "~root/.ssh/id"',
    ),
    "home without HOME": (
        "host: x\nidentity: ~/.ssh/id",
        '4: devices.desk.identity: expected an absolute path (HOME is not set, so ~ is nowhere), got "~/.ssh/id"',
    ),
}


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
        "4: targets.iq.directory: expected placeholders out of {name}, {display_name}, {folder}, {artifact},"
        ' {branch}, {directory}, {changes}, {path}, got "models/{fodler}"',
    ),
    "message attribute": (
        'repository: x\nmessage: "{name.__class__}"',
        "4: targets.iq.message: expected placeholders out of {name}, {display_name}, {folder}, {artifact},"
        ' {branch}, {directory}, {changes}, {path}, got "{name.__class__}"',
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


@pytest.mark.parametrize("word", sorted(DOIT_COMMANDS | COMMANDS | STAGES))
def test_a_model_may_not_be_called_like_a_command_or_stage(word: str) -> None:
    for spelled in (word, word.upper()):
        found = problems(f"models:\n  {spelled}: {{{MODEL}}}\n")
        assert found[0].startswith(f"models.yaml:2: models.{spelled}: expected a name that is not taken")


def test_every_command_of_doit_is_reserved() -> None:
    from doit.doit_cmd import DoitMain

    assert set(DoitMain().get_cmds()) <= DOIT_COMMANDS


NAMES = {
    "a=b": "expected a name without =, which sets a variable for doit",
    '"a:b"': "expected a name without :, which parts a stage from a model",
    "a/b": "expected a name without /, which is a path",
    "-a": "expected a name that does not start with -, the sign of an option",
    "_a": "expected a name of letters (a-z, A-Z), digits, ., _ and -, starting with a letter or digit",
    '"a b"': "expected a name of letters",
    '"*"': "expected a name of letters",
    '""': "expected a name of letters",
    "ñ": "expected a name of letters",
    "a.": "expected a name of letters",
    "con": "expected a name that Windows disks can keep",
    "COM1.x": "expected a name that Windows disks can keep",
    "x" * 65: "expected a name of at most 64 characters",
    "on": "expected a name that is not taken: it is a YAML boolean or null",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_name_that_tools_or_disks_cannot_take_is_refused(name: str) -> None:
    found = problems(f"models:\n  {name}: {{{MODEL}}}\n")
    assert found[0].startswith("models.yaml:2: models.")
    assert NAMES[name] in found[0]


def test_two_names_that_differ_in_case_only_are_refused() -> None:
    found = problems(f"models:\n  NoPP: {{{SAMPLE}, artifact: a.pkl}}\n  nopp: {{{SAMPLE}, artifact: b.pkl}}\n")
    assert found == (
        'models.yaml:3: models.nopp: expected names that differ in more than case from "NoPP", got "nopp"',
    )


def test_one_artifact_name_belongs_to_one_model_of_a_folder_whatever_the_case() -> None:
    text = f"models:\n  a: {{{SAMPLE}, artifact: X.pkl, folder: F}}\n  b: {{{SAMPLE}, artifact: x.pkl, folder: f}}\n"
    expected = 'expected a file name of its own in the folder "f", got "x.pkl", as models.a.artifact in line 2'
    assert problems(text) == (f"models.yaml:3: models.b.artifact: {expected}",)


def test_one_artifact_name_in_two_folders_is_fine() -> None:
    text = f"models:\n  a: {{{SAMPLE}, artifact: X.pkl, folder: F}}\n  b: {{{SAMPLE}, artifact: x.pkl, folder: G}}\n"
    assert set(parse_catalog(text, path="m", environ={}).models) == {"a", "b"}


def test_two_roles_of_one_model_need_two_file_names() -> None:
    text = (
        "models:\n  a:\n    kind: vision_policy\n    sources: {vision: /v.onnx, policy: /p.onnx}\n"
        "    artifacts:\n      vision: x.pkl\n      policy: x.pkl\n"
    )
    expected = 'expected a file name of its own in the folder "a", got "x.pkl", as models.a.artifacts.vision in line 6'
    assert problems(text) == (f"models.yaml:7: models.a.artifacts.policy: {expected}",)


def test_two_models_may_not_claim_one_former_name() -> None:
    text = f"models:\n  a: {{{SAMPLE}, artifact: a.pkl, was: c}}\n  b: {{{SAMPLE}, artifact: b.pkl, was: c}}\n"
    assert problems(text) == ('models.yaml:3: models.b.was: expected a former name that a does not claim, got "c"',)


SPLIT = {
    "one source for a split model": (
        "kind: vision_policy\nsource: /x.onnx\nartifact: a.pkl",
        "4: models.a.source: expected sources: by role (vision, policy), since kind is vision_policy, got one",
    ),
    "a role too few": (
        "kind: vision_policy\nsources: {vision: /x.onnx}\nartifact: a.pkl",
        "4: models.a.sources: expected policy too, since kind is vision_policy",
    ),
    "a role too many": (
        "kind: vision_policy\nsources: {vision: /x.onnx, policy: /p.onnx, on_policy: /o.onnx}\nartifact: a.pkl",
        '4: models.a.sources.on_policy: expected vision and policy, since kind is vision_policy, got "on_policy"',
    ),
}


@pytest.mark.parametrize("case", SPLIT)
def test_a_split_model_has_the_roles_of_its_kind(case: str) -> None:
    keys, expected = SPLIT[case]
    text = "models:\n  a:\n" + "".join(f"    {line}\n" for line in keys.splitlines())
    assert problems(text) == (f"models.yaml:{expected}",)


def test_all_problems_come_at_once_in_the_order_of_lines() -> None:
    text = """\
profiles:
  gpu: {flags: {IMAGE: yes}, expected_device: AMD}
devices:
  desk: {host: desk.lan, port: 0}
models:
  list:
    source: ../x.onnx
    artifact: out/x.pkl
  nopp:
    frameskip: 2
    device: dask
    profile: gpo
"""
    found = problems(text)
    assert [line.split(":")[1] for line in found] == ["2", "4", "6", "7", "8", "9", "9", "10", "11", "12"]
    with pytest.raises(CatalogError) as caught:
        parse_catalog(text, path="models.yaml", environ={})
    assert caught.value.exit_status == EXIT_CATALOG
    assert str(caught.value).splitlines()[-1] == "10 errors, nothing was run."
