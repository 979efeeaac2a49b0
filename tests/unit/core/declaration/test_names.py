"""Names that doit, disks or people could not tell apart, and roles of split models."""

from __future__ import annotations

import pytest

from buildlib.core.declaration import resolver
from buildlib.core.declaration.catalog_parser import parse_catalog
from buildlib.core.declaration.names import COMMANDS, DOIT_COMMANDS, STAGES
from buildlib.core.sources import model_form
from tests.unit.core.declaration.refusals import MODEL, SAMPLE, problems


@pytest.mark.parametrize("word", sorted(DOIT_COMMANDS | COMMANDS | STAGES))
def test_a_model_may_not_be_called_like_a_command_or_stage(word: str) -> None:
    for spelled in (word, word.upper()):
        found = problems(f"models:\n  {spelled}: {{{MODEL}}}\n")
        assert found[0].startswith(f"models.yaml:2: models.{spelled}: expected a name that is not taken")


def test_every_command_of_doit_and_of_the_build_is_reserved() -> None:
    from doit.doit_cmd import DoitMain

    assert set(DoitMain().get_cmds()) <= DOIT_COMMANDS | COMMANDS


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


@pytest.mark.parametrize("artifact", ["x.recompiled.pkl", "x.Recompiled.pkl"])
def test_no_artifact_is_called_as_another_models_compile_output(artifact: str) -> None:
    """`x.pkl` is compiled to `x.recompiled.pkl`, among the device's active files."""
    text = f"models:\n  a: {{{SAMPLE}, artifact: x.pkl}}\n  b: {{{SAMPLE}, artifact: {artifact}}}\n"
    (problem,) = problems(text)
    assert problem.startswith("models.yaml:3: models.b.artifact: expected a file name that does not end in")


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


def test_the_parser_and_the_inspection_know_the_same_roles() -> None:
    assert resolver.ROLES == model_form.ROLES


DEFAULTS = {
    "profile: gpu": '2: defaults.profile: expected one of qcom, egpu, cpu, got "gpu"; did you mean "egpu"?',
    "device: desk": '2: defaults.device: expected one of local, got "desk"',
    "target: iq": '2: defaults.target: expected a name under targets:, which is empty, got "iq"',
    "{device: local, tags: [x]}": "2: defaults.tags: expected either device or tags, got both",
    "tags: [x]": "2: defaults.tags: expected tags that some device has all of, got x",
    "artifact: a.pkl": '2: defaults: unknown key "artifact"',
}


@pytest.mark.parametrize("keys", DEFAULTS)
def test_defaults_are_held_to_what_models_are(keys: str) -> None:
    assert f"models.yaml:{DEFAULTS[keys]}" in problems(f"defaults:\n  {keys}\nmodels: {{}}\n")
