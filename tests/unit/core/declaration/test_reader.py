"""Every refused key of a model, with its line and its words."""

from __future__ import annotations

import pytest

from tests.unit.core.declaration.refusals import model, problems

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
        (
            "3: models.nopp.artifact: expected a file name that does not start with -, . or a space, nor"
            " end with . or a"
            ' space, got "-x.pkl"'
        ),
    ),
    "artifact written backwards": (
        'artifact: "a\\u202egpj.pkl"',
        (
            "3: models.nopp.artifact: expected a file name of printable characters (it holds U+202E), got"
            ' "a\\u202egpj.pkl"'
        ),
    ),
    "artifact with a newline": (
        'artifact: "a\\nb.pkl"',
        '3: models.nopp.artifact: expected a file name of printable characters (it holds U+000A), got "a\\nb.pkl"',
    ),
    "artifact decomposed": (
        "artifact: e\u0301.pkl",
        (
            "3: models.nopp.artifact: expected a file name in composed unicode (NFC), as Mac disks would rename it, got"
            ' "e\u0301.pkl"'
        ),
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
        (
            '4: models.nopp.flags.IMAGE: expected the exact text, "yes" in quotes or 1, got yes'
            ", which is a boolean in YAML"
        ),
    ),
    "flag Off": (
        "flags:\n  IMAGE: Off",
        (
            '4: models.nopp.flags.IMAGE: expected the exact text, "Off" in quotes or 0, got Off, which is a'
            " boolean in YAML"
        ),
    ),
    "flag true": (
        "flags:\n  IMAGE: true",
        (
            '4: models.nopp.flags.IMAGE: expected the exact text, "true" in quotes or 1, got true, which is a'
            " boolean in YAML"
        ),
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
        (
            "4: models.nopp.flags.PATH: expected a flag; the build itself sets this variable (guide, section 5), got"
            ' "PATH"'
        ),
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
        (
            "3: models.nopp.kind: expected supercombo, vision_multi_policy or vision_policy, got vision_polcy; did you"
            ' mean "vision_policy"?'
        ),
    ),
    "unknown profile": (
        "profile: qcmo",
        '3: models.nopp.profile: expected one of qcom, egpu, cpu, got "qcmo"; did you mean "qcom"?',
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
        (
            "3: models.nopp.artifacts.supercmbo: expected combined, off_policy, on_policy, policy,"
            " supercombo or vision, got"
            ' "supercmbo"; did you mean "supercombo"?'
        ),
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
        (
            '3: models.nopp: key "password" is refused: models.yaml holds no secrets; use a key file (identity)'
            " or the agent"
        ),
    ),
}


@pytest.mark.parametrize("case", KEYS)
def test_a_wrong_key_of_a_model_is_named_with_its_line(case: str) -> None:
    keys, expected = KEYS[case]
    assert f"models.yaml:{expected}" in problems(model(keys))
