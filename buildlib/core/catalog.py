"""The catalog: what models.yaml says, resolved. Values only; `catalog_parser` makes them from text.

"Resolved" means: defaults and profiles are merged in, short forms are expanded, names are validated. What is here
can be trusted by every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Kind = Literal["supercombo", "vision_policy", "vision_multi_policy"]
LOCAL = "local"
"""Name of the embedded device: a directory laid out like a device's root, driven by subprocesses."""


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every catalog value: immutable, keyword-only, no unknown keys."""


class PathSource(Value, frozen=True, kw_only=True, tag="path", tag_field="kind"):
    """A file on a disk or a mounted share; relative paths are taken from the project's root."""

    path: str


class SampleSource(Value, frozen=True, kw_only=True, tag="sample", tag_field="kind"):
    """A synthetic ONNX of the right form, for machines without a real model. width 64 is about 3 MB."""

    seed: int
    width: int = 64


class UrlSource(Value, frozen=True, kw_only=True, tag="url", tag_field="kind"):
    """A download (http, https, file) with its sha256, 64 hex digits in lower case."""

    url: str
    sha256: str


class GitSource(Value, frozen=True, kw_only=True, tag="git", tag_field="kind"):
    """A file in a git repository; a moving ref is resolved into models.lock."""

    repository: str
    ref: str
    path: str


Source = PathSource | SampleSource | UrlSource | GitSource


class Profile(Value, frozen=True, kw_only=True):
    """A named set of compile flags, and the device that must come out of them ("QCOM", "CPU")."""

    name: str
    flags: Mapping[str, str]
    expected_device: str


class Bundle(Value, frozen=True, kw_only=True):
    """A model's entry in the selector's manifests (facts, section 4)."""

    short_name: str
    ref: str | None = None
    environment: str | None = None
    generation: str | None = None
    minimum_selector_version: str | None = None
    overrides: Mapping[str, str] = {}


class DevicePaths(Value, frozen=True, kw_only=True):
    """Where things are on a device (guide, "Current Expected Device Context"). `root` is put before each."""

    root: str = ""
    openpilot: str = "/data/openpilot"
    tinygrad: str = "/data/openpilot/tinygrad_repo"
    venv: str = "/usr/local/venv"
    python: str | None = None
    models: str = "/data/media/0/models"
    sources: str = "/data/media/0"
    params: str = "/data/params/d"
    state: str = "/data/supercombo-build"
    crashes: str = "/data/community/crashes"
    home: str = "/data/root-home"
    cache: str = "/data/root-cache"
    uv_cache: str = "/data/root-uv-cache"
    tmp: str = "/data/root-tmp"


class Timeouts(Value, frozen=True, kw_only=True):
    """Seconds. `idle` is silence on a link; `compile` and `validate` bound the whole job."""

    connect: float = 10.0
    idle: float = 30.0
    compile: float = 3600.0
    validate: float = 300.0


class Device(Value, frozen=True, kw_only=True):
    """A device that compiles, and perhaps runs, models."""

    name: str
    transport: Literal["local", "ssh"] = "ssh"
    host: str | None = None
    port: int | None = None
    user: str | None = None
    identity: str | None = None
    known_hosts: str | None = None
    proxy_jump: str | None = None
    agent: bool = False
    sudo: bool = True
    profile: str | None = None
    tags: tuple[str, ...] = ()
    install: bool = False
    compile_script: str = "builtin"
    """"builtin" (ours, shipped by content) or a path on the device."""
    sync_sconscript: str | None = None
    """Workstation file copied over the device's SConscript before its flags are checked (guide, section 1)."""
    keep_backups: int = 3
    goal: Literal["verify", "install", "validate"] | None = None
    """How far a bare `doit` goes; None: `validate` where `install` is true, else `verify`."""
    validate_seconds: float = 10.0
    paths: DevicePaths = DevicePaths()
    timeouts: Timeouts = Timeouts()


class Target(Value, frozen=True, kw_only=True):
    """A place that artifacts are published to."""

    name: str
    kind: Literal["git", "folder", "huggingface"]
    repository: str
    remote: str = "origin"
    branch: str = "main"
    directory: str = "models/recompiled16/model-{folder}"
    manifests: tuple[str, ...] = ("docs/model_selector_b.json", "docs/model_fetcher_b.json")
    message: str = "Recompile {display_name} with {changes}"
    succeeds: tuple[str, ...] = ()
    """Manifests of the catalog before, in the order of `manifests`: bundles come from there when first published."""
    files: str | None = None
    """Name of the target that takes the artifacts, where this one has the manifests only."""
    url: str | None = None
    large_files: Literal["plain", "lfs", "chunks"] | None = None
    author: str | None = None
    sandbox: bool = False
    confirm_timeout: float = 600.0
    policy: tuple[Literal["harness", "onroad"], ...] = ("harness", "onroad")


class Model(Value, frozen=True, kw_only=True):
    """One model, everything merged.

    sources and artifacts are by role; a supercombo has the one role "supercombo". flags are the model's own, merged
    over a profile's by `core.flags.effective_flags`; None unsets a profile's flag. Sizes are (width, height) in pixels.
    """

    name: str
    display_name: str
    folder: str
    kind: Kind = "supercombo"
    sources: Mapping[str, Source]
    artifacts: Mapping[str, str]
    profile: str
    device: str | None = None
    tags: tuple[str, ...] = ()
    flags: Mapping[str, str | None] = {}
    strict_flags: bool = False
    model_size: tuple[int, int] = (512, 256)
    camera_resolutions: tuple[tuple[int, int], ...] = ((1344, 760), (1928, 1208))
    frame_skip: int = 4
    expected_device: str | None = None
    """Only where it differs from the profile's."""
    bundle: Bundle | None = None
    target: str | None = None
    was: str | None = None
    """Former name: receipts under it count."""

    @property
    def artifact(self) -> str:
        """File name of the (first) artifact."""
        return next(iter(self.artifacts.values()))

    @property
    def is_sample(self) -> bool:
        """True when anything in it was made up: its artifact never leaves `local` or a sandbox."""
        return any(isinstance(source, SampleSource) for source in self.sources.values())


class Catalog(Value, frozen=True, kw_only=True):
    """All of models.yaml. `lines` maps dotted paths ("models.nopp.frame_skip") to line numbers, from 1."""

    path: str
    models: Mapping[str, Model]
    profiles: Mapping[str, Profile]
    devices: Mapping[str, Device]
    targets: Mapping[str, Target]
    lines: Mapping[str, int] = {}

    def source_line(self, model: Model, role: str) -> str:
        """The line that names a model's ONNX of one role, in the short form or by role."""
        short, by_role = f"models.{model.name}.source", f"models.{model.name}.sources.{role}"
        return self.line(short if short in self.lines else by_role)

    def line(self, path: str) -> str:
        """`models.yaml:12` for the nearest known parent of a dotted path."""
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return f"{self.path}:{self.lines[path]}" if path else self.path
