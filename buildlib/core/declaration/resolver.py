"""What was read from models.yaml, merged and cross-checked: defaults, profiles, devices, targets, references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from buildlib.core.catalog import LOCAL, Catalog, Target
from buildlib.core.declaration import names, words
from buildlib.core.declaration.builtin import LOCAL_DEVICE, PROFILES, QCOM
from buildlib.core.declaration.problems import Problems, did_you_mean, shown
from buildlib.core.declaration.reader import INVALID

ROLES: Mapping[str, tuple[str, ...]] = {
    "supercombo": ("supercombo",),
    "vision_policy": ("vision", "policy"),
    "vision_multi_policy": ("vision", "on_policy", "off_policy"),
}
"""The ONNX that a kind is made of."""

MANIFESTS = next(field.default for field in msgspec.structs.fields(Target) if field.name == "manifests")
COMBINED = "combined"
"""Role of the one artifact that holds all networks of a split model."""


def resolve(raw: Mapping[str, Any], lines: Mapping[str, int], problems: Problems) -> Catalog | None:
    """The catalog, or None after adding to `problems`. raw: what `Reader.read` gave."""
    return _Resolver(raw, lines, problems).resolve()


class _Resolver:
    def __init__(self, raw: Mapping[str, Any], lines: Mapping[str, int], problems: Problems) -> None:
        self.raw = raw
        self.lines = lines
        self.problems = problems

    def resolve(self) -> Catalog | None:
        for section in ("models", "profiles", "devices", "targets"):
            self._check_twins(section)
        profiles = {name: dict(value) for name, value in PROFILES.items()}
        profiles.update({name: {"name": name, **value} for name, value in self._section("profiles")})
        devices = {LOCAL: self._device(LOCAL, {})}
        devices.update({name: self._device(name, value) for name, value in self._section("devices")})
        targets = {name: self._target(name, value) for name, value in self._section("targets")}
        self._check_defaults()
        models = {name: self._model(name, value) for name, value in self._section("models")}
        self._check_artifacts(models)
        self._check_former_names(models)
        if self.problems:
            return None
        return msgspec.convert(
            {
                "path": self.problems.path,
                "models": models,
                "profiles": profiles,
                "devices": devices,
                "targets": targets,
                "lines": dict(self.lines),
            },
            Catalog,
        )

    def _section(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        section = self.raw.get(name) or {}
        return [(key, value) for key, value in section.items() if value is not INVALID]

    def _known(self, section: str) -> list[str]:
        own = {"profiles": list(PROFILES), "devices": [LOCAL]}.get(section, [])
        return own + [key for key in self.raw.get(section) or {} if key not in own]

    def _line(self, path: str) -> int:
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return self.lines.get(path, 0)

    def _expected(self, path: str, expected: str, got: str) -> None:
        self.problems.expected(self._line(path), path, expected, got)

    def _check_twins(self, section: str) -> None:
        first: dict[str, str] = {}
        for key in self.raw.get(section) or {}:
            twin = first.setdefault(names.folded(key), key)
            if twin != key:
                self._expected(
                    f"{section}.{key}", f"names that differ in more than case from {shown(twin)}", shown(key)
                )

    def _check_reference(self, path: str, name: Any, section: str) -> None:
        known = self._known(section)
        if isinstance(name, str) and name not in known:
            hint = did_you_mean(name, known)
            choice = f"one of {', '.join(known[:8])}" if known else f"a name under {section}:, which is empty"
            self._expected(path, choice, shown(name) + hint)

    # Devices and targets

    def _device(self, name: str, raw: dict[str, Any]) -> dict[str, Any]:
        path = f"devices.{name}"
        base = dict(LOCAL_DEVICE) if name == LOCAL else {}
        given = {key: value for key, value in raw.items() if value is not None}
        device = {**base, **given, "name": name}
        is_local = device.get("transport", "ssh") == "local"
        device.setdefault("sudo", not is_local)
        device.setdefault("install", is_local)
        device["paths"] = {key: value for key, value in (given.get("paths") or {}).items() if value is not None}
        if is_local:
            self._check_local(path, device)
        else:
            self._check_ssh(path, name, device)
        self._check_reference(f"{path}.profile", device.get("profile"), "profiles")
        return device

    def _check_local(self, path: str, device: dict[str, Any]) -> None:
        for key in ("host", "port", "user", "identity", "known_hosts", "proxy_jump"):
            if key in device:
                self._expected(f"{path}.{key}", "no such key where transport is local", shown(str(device[key])))
        if not device["paths"].get("root"):
            device["paths"]["root"] = f".build/devices/{device['name']}/root"

    def _check_ssh(self, path: str, name: str, device: dict[str, Any]) -> None:
        if name == LOCAL:
            self._expected(f"{path}.transport", "local, for the built-in device of that name", "ssh")
        elif device.get("host") is None and f"{path}.host" not in self.lines:
            self.problems.add(self._line(path), path, 'expected the key "host", which is missing')
        root = device["paths"].get("root")
        if root and not root.startswith("/"):
            self._expected(f"{path}.paths.root", "an absolute path on the device", shown(root))

    def _target(self, name: str, raw: dict[str, Any]) -> dict[str, Any]:
        path = f"targets.{name}"
        repository = raw.get("repository")
        kind = raw.get("kind", "git")
        if isinstance(repository, str):
            rule = words.hugging_face if kind == "huggingface" else names.local_path
            wrong = rule(repository)
            if wrong:
                self._expected(f"{path}.repository", wrong, shown(repository))
        self._check_files_of(path, name, raw)
        succeeds, manifests = raw.get("succeeds") or (), raw.get("manifests")
        if succeeds and len(succeeds) != len(manifests if manifests is not None else MANIFESTS):
            self._expected(f"{path}.succeeds", "as many as manifests, in the same order", str(len(succeeds)))
        defaults = {"kind": "git", **({"policy": ["harness"]} if raw.get("sandbox") else {})}
        return {**defaults, **{key: value for key, value in raw.items() if value is not None}, "name": name}

    def _check_files_of(self, path: str, name: str, raw: dict[str, Any]) -> None:
        """Another target for the artifacts: one that exists, takes artifacts itself, and is no less a sandbox."""
        other = raw.get("files")
        self._check_reference(f"{path}.files", other, "targets")
        settings = dict(self._section("targets")).get(str(other))
        if other == name or (settings is not None and settings.get("files") is not None):
            self._expected(f"{path}.files", "a target that takes artifacts itself", shown(str(other)))
        elif settings is not None and bool(settings.get("sandbox")) != bool(raw.get("sandbox")):
            self._expected(f"{path}.files", "a target with the same `sandbox`", shown(str(other)))

    # Models

    def _check_defaults(self) -> None:
        defaults = self.raw.get("defaults") or {}
        self._check_device_or_tags("defaults", defaults)
        self._check_references("defaults", defaults)

    def _check_references(self, path: str, raw: Mapping[str, Any]) -> None:
        self._check_reference(f"{path}.profile", raw.get("profile"), "profiles")
        self._check_reference(f"{path}.device", raw.get("device"), "devices")
        self._check_reference(f"{path}.target", raw.get("target"), "targets")
        tags = set(raw.get("tags") or ())
        if tags and not any(tags <= set(device.get("tags", ())) for _, device in self._section("devices")):
            self._expected(f"{path}.tags", "tags that some device has all of", ", ".join(sorted(tags)))

    def _check_device_or_tags(self, path: str, raw: Mapping[str, Any]) -> None:
        if raw.get("device") is not None and raw.get("tags"):
            self._expected(f"{path}.tags", "either device or tags", "both")

    def _model(self, name: str, raw: dict[str, Any]) -> dict[str, Any]:
        path = f"models.{name}"
        self._check_device_or_tags(path, raw)
        self._check_references(path, raw)
        defaults = dict(self.raw.get("defaults") or {})
        if raw.get("device") is not None or raw.get("tags"):
            defaults.pop("device", None)
            defaults.pop("tags", None)
        merged = {"profile": QCOM, **defaults, **raw, "name": name}
        merged["flags"] = {**(defaults.get("flags") or {}), **(raw.get("flags") or {})}
        if merged.get("device") is None and not merged.get("tags"):
            merged["device"] = LOCAL
        merged["display_name"] = merged.get("display_name") or name
        merged["folder"] = merged.get("folder") or self._folder(path, merged["display_name"])
        for key in ("model_size", "camera_resolutions"):
            if key in merged:
                merged[key] = _pixels(merged[key])
        kind = merged.get("kind", "supercombo")
        merged["sources"] = self._by_role(path, raw, kind, "source")
        merged["artifacts"] = self._by_role(path, raw, kind, "artifact")
        merged.pop("source", None)
        merged.pop("artifact", None)
        if isinstance(merged.get("bundle"), dict):
            bundle = merged["bundle"]
            merged["bundle"] = {**bundle, "overrides": bundle.get("overrides") or {}}
        return merged

    def _folder(self, path: str, display_name: str) -> str:
        wrong = names.file_name(display_name)
        if wrong:
            text = f"expected folder: {wrong}, since the display name {shown(display_name)} is none"
            self.problems.add(self._line(f"{path}.display_name"), path, text)
        return display_name

    def _by_role(self, path: str, raw: Mapping[str, Any], kind: str, key: str) -> dict[str, Any]:
        """Sources or artifacts by role, out of the short form or the long one."""
        short, long = raw.get(key), raw.get(f"{key}s")
        if f"{path}.{key}" in self.lines and f"{path}.{key}s" in self.lines:
            self._expected(f"{path}.{key}s", f"either {key} or {key}s", "both")
            return {}
        roles = ROLES[kind]
        if short is not None:
            if len(roles) > 1 and key == "source":
                self._expected(f"{path}.{key}", f"sources: by role ({', '.join(roles)}), since kind is {kind}", "one")
            return {roles[0] if len(roles) == 1 else COMBINED: _expanded(key, short)}
        if long:
            self._check_roles(path, long, kind, key)
            return {role: _expanded(key, value) for role, value in long.items()}
        # A key that was given and is not in `raw` was refused by the reader already.
        refused = any(f"{path}.{given}" in self.lines and given not in raw for given in (key, f"{key}s"))
        if not refused:
            self.problems.add(self._line(path), path, f'expected the key "{key}", which is missing')
        return {}

    def _check_roles(self, path: str, long: Mapping[str, Any], kind: str, key: str) -> None:
        roles = ROLES[kind]
        if key == "artifact" and set(long) == {COMBINED} and len(roles) > 1:
            return
        for role in long:
            if role not in roles and role in {*sum(ROLES.values(), ()), COMBINED}:
                self._expected(f"{path}.{key}s.{role}", f"{' and '.join(roles)}, since kind is {kind}", shown(role))
        missing = [role for role in roles if role not in long]
        if missing:
            text = f"expected {' and '.join(missing)} too, since kind is {kind}"
            self.problems.add(self._line(f"{path}.{key}s"), f"{path}.{key}s", text)

    def _check_artifacts(self, models: Mapping[str, dict[str, Any]]) -> None:
        """One file name in one folder belongs to one model and role; disks may fold case."""
        owners: dict[tuple[str, str], str] = {}
        for name, model in models.items():
            for role, artifact in model["artifacts"].items():
                if not isinstance(artifact, str):
                    continue
                path = f"models.{name}.artifacts.{role}"
                path = path if path in self.lines else f"models.{name}.artifact"
                owner = owners.setdefault((names.folded(model["folder"]), names.folded(artifact)), path)
                if owner != path:
                    what = f"a file name of its own in the folder {shown(model['folder'])}"
                    self._expected(path, what, f"{shown(artifact)}, as {owner} in line {self._line(owner)}")

    def _check_former_names(self, models: Mapping[str, dict[str, Any]]) -> None:
        owners: dict[str, str] = {}
        for name, model in models.items():
            was = model.get("was")
            if was is None:
                continue
            if was in models:
                self._expected(f"models.{name}.was", "a name that no model has now", shown(was))
            elif owners.setdefault(was, name) != name:
                self._expected(f"models.{name}.was", f"a former name that {owners[was]} does not claim", shown(was))


def _expanded(key: str, value: Any) -> Any:
    if key == "source" and isinstance(value, str):
        return {"kind": "path", "path": value}
    if isinstance(value, dict) and isinstance(value.get("sha256"), str):
        return {**value, "sha256": value["sha256"].lower()}
    return value


def _pixels(value: Any) -> Any:
    """ "512x256" to (512, 256), alone or in a tuple."""
    if isinstance(value, tuple):
        return tuple(_pixels(item) for item in value)
    width, _, height = value.partition("x")
    return int(width), int(height)
