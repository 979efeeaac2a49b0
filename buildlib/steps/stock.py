"""A stock openpilot tree on this disk, looked at as a device is: its flags, its tinygrad, its compile script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from buildlib import errors
from buildlib.core.catalog import Device, DevicePaths
from buildlib.core.diagnoses.stock_comparison import Toolchain, version_numbers
from buildlib.core.flags import effective_flags, uses_own_profile
from buildlib.core.world import Subject
from buildlib.device.link import DeviceLink
from buildlib.steps import toolchain
from buildlib.steps.scripts import compile_script_id
from buildlib.steps.services import open_transport
from buildlib.steps.world import Observation
from buildlib.store.workspace import Workspace

SCONSCRIPTS = (
    "selfdrive/modeld/SConscript",
    "openpilot/selfdrive/modeld/SConscript",
    "sunnypilot/modeld_v2/SConscript",
    "iqpilot/selfdrive/iqmodeld/SConscript",
)
SCRIPTS = (
    "selfdrive/modeld/compile_supercombo.py",
    "selfdrive/modeld/compile_modeld.py",
    "openpilot/selfdrive/modeld/compile_modeld.py",
    "iqpilot/selfdrive/iqmodeld/tools/compile_supercombo.py",
    "tinygrad_repo/examples/openpilot/compile3.py",
)
NOWHERE = "/nonexistent/of-a-stock-tree"
"""No parameters and no state there: what does not say that it is offroad is not written to."""


def stock_toolchains(workspace: Workspace, tree: Path) -> list[Toolchain]:
    """One for each function of the tree's SConscript that says flags for larch64. Raises UsageError. Nothing is run."""
    tree = tree.expanduser().absolute()
    sconscript = next((tree / name for name in SCONSCRIPTS if (tree / name).is_file()), None)
    if sconscript is None:
        raise errors.UsageError(
            "no SConscript of a model process is in this tree",
            where=str(tree),
            expected=f"an openpilot checkout with {SCONSCRIPTS[0]}",
            got=None if tree.is_dir() else "no folder",
            remedy="name the root of the checkout",
        )
    script = next((tree / name for name in SCRIPTS if (tree / name).is_file()), None)
    paths = DevicePaths(
        openpilot=str(tree), tinygrad=str(tree / "tinygrad_repo"), params=NOWHERE, state=NOWHERE, models=NOWHERE
    )
    device = Device(name="stock", transport="local", sudo=False, compile_script=str(script or ""), paths=paths)
    link = DeviceLink(open_transport(workspace, device), device, toolchain.python_on(device))
    asked: dict[str, Any] = {
        # Only the tree's own: this machine's tinygrad is not what it pins.
        "toolchain": {
            "pythonpath": [str(tree / "tinygrad_repo"), str(tree)],
            "script": {"path": str(script)} if script else {"sha256": None},
        },
        "sconscript": str(sconscript),
    }
    answer = link.call("probe", **asked)
    if not answer["flags"]:
        raise errors.UsageError(
            "no flags for larch64 are in this SConscript",
            where=str(sconscript),
            expected="a function or a variable that gives larch64 one text such as 'DEV=QCOM IMAGE=2'",
            remedy="look into it: flags that it puts together at run time are not read",
        )
    own = str(answer["people"].get("tinygrad_path") or "").startswith(str(tree.resolve()))
    return [
        Toolchain(
            name=f"{tree.name}'s {function}",
            flags=dict(word.partition("=")[::2] for word in words),
            tinygrad=answer["identity"]["tinygrad"] if own else None,
            version=version_numbers(answer["people"].get("tinygrad_version")) if own else None,
            script=answer["identity"]["script"],
        )
        for function, words in answer["flags"].items()
    ]


def our_toolchain(subject: Subject, seen: Observation | None) -> Toolchain:
    """How a model is compiled, as far as the last probe of its device told.

    Where the device decides for another profile, as `local` does, it is the model's own that a car would run: its flags
    are compared, and of the tinygrad nothing is known.
    """
    if not uses_own_profile(subject.model, subject.device):
        subject, seen = Subject(subject.catalog, subject.model, replace(subject.device, profile=None)), None
    script = compile_script_id(subject.device)
    if subject.device.compile_script != "builtin":
        script = (seen.identity or {}).get("script", "") if seen else ""
    return Toolchain(
        name=subject.model.name,
        flags=effective_flags(subject.catalog, subject.model, subject.device),
        tinygrad=(seen.identity or {}).get("tinygrad") if seen else None,
        version=version_numbers(seen.people.get("tinygrad_version")) if seen else None,
        script=script or None,
    )
