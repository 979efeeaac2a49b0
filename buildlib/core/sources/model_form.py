"""Is this ONNX the driving model that it is said to be? Decided from its inspection alone.

The forms are data: what the runtime feeds to each role (facts, section 1). A supercombo is one ONNX; split models are
one by role. `big` variants are larger networks with the same inputs: they have no form of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from buildlib.core.catalog import Kind
from buildlib.core.sources.foreign_models import foreign_name
from buildlib.core.sources.onnx_inspection import Dim, OnnxInspection, TensorSpec

_FLOATS = ("float16", "float32")
_ANY: Dim = None
POLICY_BYTES = 1_200_000
"""Bytes that an artifact is larger than its ONNX's weights: graph, metadata, kernels (facts, section 1)."""
CPU_WARP_BYTES = 4_600_000
"""Bytes that each camera's warp adds when captured on CPU."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as the runtime wants it. A "note" is worth saying; an "error" is not compiled."""

    severity: Literal["error", "note"]
    what: str
    expected: str = ""
    got: str = ""
    remedy: str = ""

    def text(self) -> str:
        """One line: `what: expected X, got Y`."""
        tail = f": expected {self.expected}" if self.expected else ""
        tail += (f", got {self.got}" if tail else f": got {self.got}") if self.got else ""
        return self.what + tail


class InputForm(msgspec.Struct, frozen=True):
    """What the runtime feeds: dtypes in order of preference; None in a shape is any size."""

    dtypes: tuple[str, ...]
    shape: tuple[Dim, ...]

    def text(self) -> str:
        """`float16 (1, 25, 8)`."""
        return TensorSpec(name="", dtype=self.dtypes[0], shape=self.shape).text()

    def fits(self, spec: TensorSpec) -> bool:
        """True when the runtime's array goes in as it is."""
        if spec.dtype not in self.dtypes or spec.shape is None or len(spec.shape) != len(self.shape):
            return False
        pairs = zip(self.shape, spec.shape, strict=True)
        return all(have == want or (want is None and isinstance(have, int)) for want, have in pairs)


class RoleForm(msgspec.Struct, frozen=True, kw_only=True):
    """The ONNX of one role. outputs: names that its output_slices must hold, because the runtime reads them."""

    inputs: Mapping[str, InputForm]
    outputs: tuple[str, ...] = ()
    extras: bool = False
    """Extra inputs are appended to the packed vector."""


ROLES: Mapping[Kind, tuple[str, ...]] = {
    "supercombo": ("supercombo",),
    "vision_policy": ("vision", "policy"),
    "vision_multi_policy": ("vision", "on_policy", "off_policy"),
}


def role_form(role: str, model_size: tuple[int, int] = (512, 256)) -> RoleForm:
    """The form of a role. model_size: (width, height) in pixels of the warped frame; each image is 2 frames of 6
    planes of half that size."""
    width, height = model_size
    image = InputForm(("uint8",), (1, 12, height // 2, width // 2))
    images = {"img": image, "big_img": image}
    vector = {"traffic_convention": InputForm(_FLOATS, (1, 2))}
    if role == "vision":
        return RoleForm(inputs=images, outputs=("hidden_state",))
    if role == "supercombo":
        queues = {
            "desire_pulse": InputForm(_FLOATS, (1, 25, 8)),
            "features_buffer": InputForm(_FLOATS, (1, 24, 512)),
            "action_t": InputForm(_FLOATS, (1, 2)),
        }
        odometry = ("pose", "wide_from_device_euler", "road_transform")
        return RoleForm(inputs={**images, **queues, **vector}, outputs=("hidden_state", *odometry), extras=True)
    queues = {
        "desire_pulse": InputForm(_FLOATS, (1, 25, 8)),
        "features_buffer": InputForm(_FLOATS, (1, _ANY, 512)),
    }
    return RoleForm(inputs={**queues, **vector}, extras=True)


def check_source(
    inspection: OnnxInspection, kind: Kind, role: str, model_size: tuple[int, int] = (512, 256)
) -> list[Problem]:
    """All that stands between an ONNX and a compile as `kind`, worst first. Empty: as the runtime wants it.

    A model that is no driving model at all gives one error that says which it is, instead of a list of inputs.
    """
    if role not in ROLES[kind]:
        return [
            Problem(
                severity="error",
                what=f"a {kind} has no ONNX of the role {role!r}",
                expected=" and ".join(ROLES[kind]),
                remedy="correct the role under sources in models.yaml",
            )
        ]
    form = role_form(role, model_size)
    if stranger := _stranger(inspection, kind, role, form):
        return [stranger]
    problems = [*_file_problems(inspection), *_input_problems(inspection, form), *_output_problems(inspection, form)]
    return sorted(problems, key=lambda problem: problem.severity)


def _stranger(inspection: OnnxInspection, kind: Kind, role: str, form: RoleForm) -> Problem | None:
    """The one problem of an ONNX that is another model altogether."""
    guess = guess_role(inspection)
    given = f"inputs {', '.join(spec.name for spec in inspection.inputs[:8]) or 'none'}"
    wanted = f"the {role if kind != 'supercombo' else kind} of a driving model, inputs {', '.join(form.inputs)}"
    if guess is None and (name := foreign_name(inspection)):
        return Problem(
            severity="error", what=f"this is {name}, no driving model", expected=wanted, got=given, remedy=_NAME_IT
        )
    if guess is None and not any(inspection.input(name) for name in form.inputs):
        return Problem(severity="error", what="no driving model", expected=wanted, got=given, remedy=_NAME_IT)
    if guess == "old_supercombo":
        return Problem(
            severity="error",
            what="a supercombo of an older openpilot, which the runtime cannot feed",
            expected=wanted,
            got=given,
            remedy="take a model whose images are img and big_img",
        )
    if guess == "driver_monitoring":
        return Problem(
            severity="error", what="this is a driver monitoring model", expected=wanted, got=given, remedy=_NAME_IT
        )
    fits = {"policy", "on_policy", "off_policy"}
    if guess is not None and guess != role and not (guess in fits and role in fits):
        remedy = f"name another ONNX for the role {role}: were two parts exchanged?"
        if guess == "supercombo" or kind == "supercombo":
            other = "supercombo" if guess == "supercombo" else "vision_policy or vision_multi_policy"
            remedy = f"set kind: {other} in models.yaml, or name another ONNX for the role {role}"
        return Problem(
            severity="error",
            what=f"this is {_WITH_ARTICLE[guess]}",
            expected=wanted,
            got=given,
            remedy=remedy,
        )
    return None


_NAME_IT = "name the driving model's own .onnx, for example driving_supercombo.onnx"
_WITH_ARTICLE = {
    "supercombo": "a whole supercombo",
    "vision": "the vision part of a split model",
    "policy": "the policy part of a split model",
}


def _file_problems(inspection: OnnxInspection) -> list[Problem]:
    """An ONNX is known by one sha256 and sent as one file, so its weights must be in it."""
    if not inspection.external_files:
        return []
    return [
        Problem(
            severity="error",
            what=f"weights lie in other files ({', '.join(inspection.external_files[:4])})",
            expected="one file that holds everything",
            remedy="""python -c "import onnx; onnx.save(onnx.load('IN.onnx'), 'OUT.onnx')", then name OUT.onnx""",
        )
    ]


def _input_problems(inspection: OnnxInspection, form: RoleForm) -> list[Problem]:
    problems = []
    for name, want in form.inputs.items():
        have = inspection.input(name)
        if have is None:
            problems.append(
                Problem(
                    severity="error",
                    what=f"input {name} is missing",
                    expected=want.text(),
                    remedy="export the model with it: the runtime feeds it on every frame",
                )
            )
        elif not want.fits(have):
            problems.append(
                Problem(
                    severity="error",
                    what=f"input {name} has another {'shape' if have.dtype in want.dtypes else 'dtype'}",
                    expected=want.text(),
                    got=have.text(),
                    remedy="export the model as the runtime feeds it; it cannot convert",
                )
            )
        elif have.dtype != want.dtypes[0]:
            problems.append(
                Problem(
                    severity="note",
                    what=f"input {name} is {have.dtype}",
                    expected=f"{want.dtypes[0]} as in published models",
                )
            )
    known = form.inputs
    problems.extend(_extra(spec, form) for spec in inspection.inputs if spec.name not in known)
    return problems


def _extra(spec: TensorSpec, form: RoleForm) -> Problem:
    if form.extras and spec.dtype in _FLOATS and spec.is_static:
        return Problem(severity="note", what=f"extra input {spec.name}, {spec.text()}, is packed behind the others")
    return Problem(
        severity="error",
        what=f"extra input {spec.name} cannot be fed",
        expected="a float16 input of fixed shape, to be packed" if form.extras else f"only {', '.join(form.inputs)}",
        got=spec.text(),
        remedy="export the model without it",
    )


def _output_problems(inspection: OnnxInspection, form: RoleForm) -> list[Problem]:
    remedy = "export the model with its metadata_props, as openpilot's exporter writes them"
    if inspection.slices_problem:
        what = f"metadata output_slices is unusable: {inspection.slices_problem}"
        return [Problem(severity="error", what=what, remedy=remedy)]
    if inspection.output_slices is None:
        what = "metadata output_slices is missing: nobody can tell its outputs apart"
        return [Problem(severity="error", what=what, remedy=remedy)]
    missing = [name for name in form.outputs if name not in inspection.output_slices]
    if missing:
        what = f"output{'s' if len(missing) > 1 else ''} {', '.join(missing)} missing from output_slices"
        return [
            Problem(severity="error", what=what, expected=", ".join(form.outputs), remedy="take a model that has them")
        ]
    return []


def guess_role(inspection: OnnxInspection) -> str | None:
    """What an ONNX is by its inputs: a role, or "old_supercombo" or "driver_monitoring", or None.

    Every kind of policy is guessed as "policy": on and off differ by file name only.
    """
    names = {spec.name for spec in inspection.inputs}
    images = bool(names & {"img", "big_img"})
    memory = bool(names & {"features_buffer", "desire_pulse"})
    if names & {"input_imgs", "big_input_imgs"}:
        return "old_supercombo" if names & {"desire", "features_buffer", "initial_state"} else None
    if {"input_img", "calib"} <= names:
        return "driver_monitoring"
    if images and memory:
        return "supercombo"
    if images:
        return "vision"
    return "policy" if memory else None


def likely_role(inspection: OnnxInspection, kind: Kind | None = None) -> tuple[Kind, str]:
    """The kind and role that an ONNX is judged as where nobody said which: its own by its inputs, else a supercombo.

    kind: of the model that it is for, where that is known.
    """
    guess = guess_role(inspection)
    if kind is None:
        kind = "vision_policy" if guess in ("vision", "policy") else "supercombo"
    roles = ROLES[kind]
    fitting = [role for role in roles if guess is not None and role.endswith(guess)]
    return kind, (fitting or list(roles))[0]


def expected_artifact_bytes(weight_bytes: int, cameras: int, expected_device: str) -> int:
    """About how large the artifact will be, in bytes (facts, section 1): weights, policy, and warps on CPU."""
    warps = cameras * CPU_WARP_BYTES if expected_device == "CPU" else 0
    return weight_bytes + POLICY_BYTES + warps
