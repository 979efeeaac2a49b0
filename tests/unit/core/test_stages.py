"""Whatever a step's result depends on is in that step's own key, and not only in the key of one before it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from buildlib.core import freshness
from buildlib.core.catalog import Bundle, Target
from buildlib.core.key import KEY_FORMAT
from buildlib.core.receipt import Receipt
from buildlib.core.stages import BY_NAME, default_goal
from buildlib.core.world import Subject
from tests.unit.core.worlds import RESULTS, DictWorld, make_subject

OTHER = "f" * 64
COMPILED = {"flags": {"DEV": "QCOM"}, "arguments": {"frame_skip": 4}, "toolchain": {"tinygrad": "1"}}


class Facts:
    """All that a key is made of, to change one at a time."""

    def __init__(self) -> None:
        self.subject = make_subject()
        self.world = DictWorld()
        self.upstream = {name: _receipt(name) for name in ("source", "compile", "publish")}

    def key(self, stage: str) -> str:
        return freshness.present_parts(self.subject, BY_NAME[stage], self.upstream, self.world)[0]

    def model(self, **changes: Any) -> None:
        self.subject = replace_in(self.subject, model=replace(self.subject.model, **changes))

    def device(self, **changes: Any) -> None:
        self.subject = replace_in(self.subject, device=replace(self.subject.device, **changes))

    def target(self, **changes: Any) -> None:
        target = replace(self.subject.catalog.targets["sandbox"], **changes)
        files = Target(name="elsewhere", kind="hugging_face", repository="y")
        catalog = replace(self.subject.catalog, targets={"sandbox": target, "elsewhere": files})
        self.subject = replace_in(self.subject, catalog=catalog)

    def seen(self, **changes: Any) -> None:
        self.world.seen = replace(self.world.seen, **changes)

    def result(self, stage: str, **changes: Any) -> None:
        before = self.upstream[stage]
        self.upstream[stage] = replace(before, result={**before.result, **changes})

    def compiled(self, **changes: Any) -> None:
        before = self.upstream["compile"]
        self.upstream["compile"] = replace(before, parts={**before.parts, **changes})


def _receipt(stage: str) -> Receipt:
    return Receipt(
        stage=stage,
        model="nopp",
        key="0" * 64,
        key_format=KEY_FORMAT,
        version=1,
        parts=COMPILED if stage == "compile" else {},
        result=RESULTS[stage],
        finished="now",
        seconds=1.0,
    )


def replace_in(subject: Subject, **changes: Any) -> Subject:
    return Subject(**{"catalog": subject.catalog, "model": subject.model, "device": subject.device, **changes})


CHANGES = {
    "the ONNX's content": lambda facts: facts.world.content.update(sha256=OTHER),
    "the model's kind": lambda facts: facts.model(kind="policy"),
    "the ONNX": lambda facts: facts.result("source", sources={"supercombo": {"sha256": OTHER}}),
    "the artifact": lambda facts: facts.result("compile", artifacts={"supercombo": {"sha256": OTHER}}),
    "the artifact's name": lambda facts: facts.model(artifacts={"supercombo": "other.pkl"}),
    "the model's name": lambda facts: facts.model(name="other"),
    "the backend": lambda facts: facts.model(expected_device="CPU"),
    "the model's size": lambda facts: facts.model(model_size=(256, 128)),
    "the cameras": lambda facts: facts.model(camera_resolutions=((1344, 760),)),
    "the frame skip": lambda facts: facts.model(frame_skip=2),
    "a flag": lambda facts: facts.model(flags={"IMAGE": "2"}),
    "the script": lambda facts: setattr(facts.world, "script_id", "another"),
    "the harness": lambda facts: setattr(facts.world, "harness", lambda subject: "another"),
    "the toolchain": lambda facts: facts.seen(identity={"tinygrad": "2"}),
    "the unit": lambda facts: facts.seen(unit="unit-2"),
    "where sources lie": lambda facts: facts.device(paths=replace(facts.subject.device.paths, sources="/data/x")),
    "where models lie": lambda facts: facts.device(paths=replace(facts.subject.device.paths, models="/data/y")),
    "the time to validate": lambda facts: facts.device(validate_seconds=facts.subject.device.validate_seconds + 1),
    "the flags of the compile": lambda facts: facts.compiled(flags={"DEV": "CPU"}),
    "the arguments of the compile": lambda facts: facts.compiled(arguments={"frame_skip": 2}),
    "the toolchain of the compile": lambda facts: facts.compiled(toolchain={"tinygrad": "2"}),
    "the bundle's folder": lambda facts: facts.model(folder="other"),
    "the bundle": lambda facts: facts.model(bundle=Bundle(short_name="n", ref="r")),
    "where its files go": lambda facts: facts.target(files="elsewhere"),
    "the publication": lambda facts: facts.upstream.update(publish=replace(facts.upstream["publish"], key=OTHER)),
    "the entries": lambda facts: facts.result("publish", entries=[]),
    **{
        f"the target's {name}": lambda facts, name=name, value=value: facts.target(**{name: value})
        for name, value in {
            "name": "x",
            "repository": "y",
            "remote": "z",
            "branch": "b",
            "directory": "d",
            "manifests": ("m.json",),
            "url": "https://example.org/{file}",
            "large_files": "plain",
        }.items()
    },
}
COUNT = {
    "source": ("the ONNX's content", "the model's kind"),
    "upload": ("the ONNX", "the unit", "where sources lie"),
    "compile": (
        *("the ONNX", "a flag", "the script", "the toolchain"),
        *("the model's kind", "the backend", "the model's size", "the cameras", "the frame skip"),
    ),
    "pull": ("the artifact", "the artifact's name", "the model's name"),
    "verify": (
        *("the artifact", "the ONNX", "the frame skip"),
        *("the flags of the compile", "the toolchain of the compile"),
    ),
    "install": ("the artifact", "the unit", "the artifact's name", "where models lie"),
    "validate": (
        *("the artifact", "the arguments of the compile", "the toolchain", "the harness", "the unit"),
        "the time to validate",
    ),
    "publish": (
        *("the artifact", "the artifact's name", "the bundle's folder", "the bundle", "where its files go"),
        *(change for change in CHANGES if change.startswith("the target's ")),
    ),
    "confirm": ("the publication", "the entries"),
}


@pytest.mark.parametrize(("stage", "what"), [(stage, what) for stage, changes in COUNT.items() for what in changes])
def test_another_one_gives_another_key(stage: str, what: str) -> None:
    facts = Facts()
    before = facts.key(stage)
    assert facts.key(stage) == before
    CHANGES[what](facts)
    assert facts.key(stage) != before


def test_nothing_is_installed_unverified_nor_published_unvalidated() -> None:
    def before(name: str) -> set[str]:
        direct = BY_NAME[name].after
        return {*direct, *(earlier for stage in direct for earlier in before(stage))}

    assert before("compile") == {"upload", "source"}
    assert before("install") == {"verify", "pull", "compile"} | before("compile")
    assert before("publish") == {"validate", "install"} | before("install")
    assert before("confirm") == {"publish"} | before("publish")


def test_a_bare_doit_goes_onto_a_device_only_where_that_is_wanted() -> None:
    facts = Facts()
    for change, goal in (({"install": False}, "verify"), ({"install": True}, "validate"), ({"goal": "pull"}, "pull")):
        facts.device(**change)
        assert default_goal(facts.subject) == goal
