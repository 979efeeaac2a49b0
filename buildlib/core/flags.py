"""Which profile, flags and backend a model is compiled with on a device, and where each comes from.

A device that names a profile decides the backend: the embedded `local` compiles a QCOM model for the CPU. The model's
own flags are merged over either profile, except those that name a backend: they belong to the model's own profile.
"""

from __future__ import annotations

from buildlib.core.catalog import Catalog, Device, Model, Profile, Value
from buildlib.core.declaration.builtin import PROFILES

BACKEND_FLAGS = frozenset({"DEV", "WARP_DEV"})
"""A model's values for these count only with the model's own profile."""


class Flag(Value, frozen=True, kw_only=True):
    """A flag with its origin.

    value: the exact text, or None where the model unsets a flag of its profile.
    where: `models.yaml:12`, or `built in`.
    origin: `profile qcom`, `model nopp` or `defaults`.
    """

    value: str | None
    where: str
    origin: str


def uses_own_profile(model: Model, device: Device) -> bool:
    """Whether the model is compiled with the profile that it names: only then may it leave for a real target."""
    return device.profile is None or device.profile == model.profile


def effective_profile(catalog: Catalog, model: Model, device: Device) -> Profile:
    """The device's profile if it names one, else the model's."""
    return catalog.profiles[device.profile or model.profile]


def expected_device(catalog: Catalog, model: Model, device: Device) -> str:
    """What the captured artifact must say ("QCOM", "CPU"). The model's own word counts with its own profile only."""
    if model.expected_device is not None and uses_own_profile(model, device):
        return model.expected_device
    return effective_profile(catalog, model, device).expected_device


def effective_flags(catalog: Catalog, model: Model, device: Device) -> dict[str, str]:
    """Flag to exact text, sorted by name: what the compile's environment gets."""
    origins = flag_origins(catalog, model, device)
    return {name: flag.value for name, flag in sorted(origins.items()) if flag.value is not None}


def flag_origins(catalog: Catalog, model: Model, device: Device) -> dict[str, Flag]:
    """Every flag that profile or model mention, unset ones too, with file, line and section it comes from."""
    profile = effective_profile(catalog, model, device)
    found = {
        name: Flag(
            value=value, where=_place(catalog, f"profiles.{profile.name}", name), origin=f"profile {profile.name}"
        )
        for name, value in profile.flags.items()
    }
    own = uses_own_profile(model, device)
    for name, value in model.flags.items():
        if name in BACKEND_FLAGS and not own:
            continue
        path = f"models.{model.name}"
        is_own = f"{path}.flags.{name}" in catalog.lines
        where = _place(catalog, path if is_own else "defaults", name)
        found[name] = Flag(value=value, where=where, origin=f"model {model.name}" if is_own else "defaults")
    return found


def _place(catalog: Catalog, section: str, name: str) -> str:
    if (
        section.startswith("profiles.")
        and section not in catalog.lines
        and section.removeprefix("profiles.") in PROFILES
    ):
        return "built in"
    return catalog.line(f"{section}.flags.{name}")
