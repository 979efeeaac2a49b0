"""models.yaml as it is written: every key, its type, its rule and its meaning.

These classes are the only description of the file. The parser checks against them, the JSON schema for editors and
the reference page are made from them. Nothing is ever an instance of them: what was read is resolved straight into
`core.catalog`, whose fields have the same names.

A field's `Meta`: `description` is for people (editors, reference); `extra["rule"]` is a function of `names` or `words`
that returns None or what was expected; `extra["exact"]` keeps a scalar as the text that was written;
`extra["home"]` puts the home directory for a leading `~/`; `extra["called"]` is the reference page's word for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from buildlib.core.declaration import names, words


class Raw(msgspec.Struct, forbid_unknown_fields=True):
    """Base: keys of a mapping in models.yaml."""


def _text(rule: Callable[[str], str | None], pattern: str | None = None, **extra: Any) -> Any:
    return Meta(pattern=pattern, extra={"rule": rule, **extra})


PlainText = Annotated[str, _text(names.plain_text)]
Name = Annotated[str, _text(names.name, names.NAME, called="name")]
ModelName = Annotated[str, _text(names.model_name, names.NAME, called="name")]
FolderName = Annotated[str, _text(names.file_name, r"^[^/\\]+$", called="file name")]
ArtifactName = Annotated[str, _text(names.artifact_name, r"^[^/\\]+\.pkl$", called="file name ending in .pkl")]
LocalPath = Annotated[str, _text(names.local_path, called="path", home=True)]
SourcePath = Annotated[str, _text(words.source_path, called="path", home=True)]
InnerPath = Annotated[str, _text(names.inner_path, called="path inside")]
DevicePath = Annotated[str, _text(names.device_path, "^/", called="path on the device")]
Size = Annotated[str, _text(words.size, words.SIZE, called="WIDTHxHEIGHT")]
FlagName = Annotated[str, _text(words.flag_name, words.FLAG, called="flag")]
FlagValue = Annotated[
    str | int | float, Meta(extra={"rule": words.flag_value, "exact": True, "called": "text or number"})
]
Digits = Annotated[str | int, Meta(extra={"rule": words.digits, "exact": True, "called": "digits"})]
Backend = Annotated[str, _text(words.backend, words.BACKEND)]
Seconds = Annotated[float, Meta(gt=0, le=1_000_000)]
Role = Literal["supercombo", "vision", "policy", "on_policy", "off_policy"]
ArtifactRole = Literal["supercombo", "combined", "vision", "policy", "on_policy", "off_policy"]


class PathSource(Raw, tag="path", tag_field="kind"):
    """A file on a disk or a mounted share. The short form is its path alone."""

    path: Annotated[LocalPath, Meta(description="Absolute, ~/..., or relative to the project.")]


class SampleSource(Raw, tag="sample", tag_field="kind"):
    """A made-up ONNX of the real form. What comes of it stays on `local` and in sandboxes."""

    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description="The same seed and width give the same bytes.")]
    width: Annotated[int, Meta(ge=8, le=4096, description="Hidden width: 64 is about 3 MB.")] = 64


class UrlSource(Raw, tag="url", tag_field="kind"):
    """A download with its hash."""

    url: Annotated[str, _text(words.url), Meta(description="https://, http:// or file://.")]
    sha256: Annotated[str, _text(words.sha256, words.SHA256), Meta(description="Of the whole file.")]


class GitSource(Raw, tag="git", tag_field="kind"):
    """A file in a git repository, through LFS where it is there."""

    repository: Annotated[str, _text(words.git_repository), Meta(description="URL, host:path, or a path here.")]
    ref: Annotated[str, _text(words.git_ref), Meta(description="Commit, tag or branch; models.lock holds the commit.")]
    path: Annotated[InnerPath, Meta(description="Of the file, inside the repository.")]


Source = SourcePath | PathSource | SampleSource | UrlSource | GitSource


class Profile(Raw):
    """A named set of compile flags and the device that must come out of them."""

    flags: Annotated[dict[FlagName, FlagValue], Meta(description="Exact texts for the compile's environment.")]
    expected_device: Annotated[Backend, Meta(description="What the captured artifact must say, QCOM or CPU.")]


class Bundle(Raw):
    """The model's entry in the selector's manifests."""

    short_name: Annotated[PlainText, Meta(description="Finds the bundle.")]
    ref: Annotated[PlainText | None, Meta(description="Git ref of the model.")] = None
    environment: Annotated[PlainText | None, Meta(description="development, release, ...")] = None
    generation: Annotated[Digits | None, Meta(description="Digits.")] = None
    minimum_selector_version: Annotated[Digits | None, Meta(description="Digits.")] = None
    overrides: Annotated[dict[PlainText, PlainText], Meta(description="folder, lat, long.")] = {}


class ModelDefaults(Raw):
    """Keys that a model may set, and `defaults` for all models that do not."""

    kind: Annotated[
        Literal["supercombo", "vision_policy", "vision_multi_policy"],
        Meta(description="One network, or several by role."),
    ] = "supercombo"
    profile: Annotated[Name, Meta(description="Flags to compile with. A device that names a profile wins.")] = "qcom"
    device: Annotated[Name | None, Meta(description="Device that compiles it. Not together with tags.")] = "local"
    tags: Annotated[tuple[Name, ...], Meta(description="Any device that has all of these compiles it.")] = ()
    flags: Annotated[
        dict[FlagName, FlagValue | None], Meta(description="Merged over the profile's; null unsets one.")
    ] = {}
    strict_flags: Annotated[bool, Meta(description="A flag that this tinygrad does not hear is an error.")] = False
    model_size: Annotated[Size, Meta(description="Of the warped image, width x height.")] = "512x256"
    camera_resolutions: Annotated[
        tuple[Size, ...], Meta(min_length=1, description="One warp is captured for each.")
    ] = ("1344x760", "1928x1208")
    frame_skip: Annotated[int, Meta(ge=1, le=100, description="Camera frames from one model frame to the next.")] = 4
    expected_device: Annotated[
        Backend | None, Meta(description="Only where it is not the profile's; counts with the model's own profile.")
    ] = None
    target: Annotated[Name | None, Meta(description="Where it is published.")] = None


class Model(ModelDefaults):
    """One model: what it is made from, and what comes out."""

    display_name: Annotated[PlainText | None, Meta(description="For people and manifests. Default: the key.")] = None
    folder: Annotated[FolderName | None, Meta(description="In the models repository. Default: the display name.")] = (
        None
    )
    source: Annotated[Source | None, Meta(description="The ONNX of a supercombo.")] = None
    sources: Annotated[dict[Role, Source], Meta(description="The ONNX by role, for split models.")] = {}
    artifact: Annotated[ArtifactName | None, Meta(description="File name of the one artifact.")] = None
    artifacts: Annotated[dict[ArtifactRole, ArtifactName], Meta(description="File names by role.")] = {}
    bundle: Annotated[Bundle | None, Meta(description="Entry in the manifests.")] = None
    was: Annotated[ModelName | None, Meta(description="Former key: what was built under it counts.")] = None


class DevicePaths(Raw):
    """Where things are on a device (guide, "Current Expected Device Context")."""

    root: Annotated[str | None, _text(words.root, home=True), Meta(description="Put before each other path.")] = None
    openpilot: DevicePath = "/data/openpilot"
    tinygrad: DevicePath = "/data/openpilot/tinygrad_repo"
    venv: DevicePath = "/usr/local/venv"
    python: Annotated[DevicePath | None, Meta(description="Default: bin/python of venv.")] = None
    models: Annotated[DevicePath, Meta(description="Where the runtime looks for artifacts.")] = "/data/media/0/models"
    sources: Annotated[DevicePath, Meta(description="Where source ONNX files are put.")] = "/data/media/0"
    params: DevicePath = "/data/params/d"
    state: Annotated[DevicePath, Meta(description="Jobs, journals, backups of the build.")] = "/data/supercombo-build"
    crashes: DevicePath = "/data/community/crashes"
    home: Annotated[DevicePath, Meta(description="HOME of a compile.")] = "/data/root-home"
    cache: Annotated[DevicePath, Meta(description="XDG_CACHE_HOME of a compile.")] = "/data/root-cache"
    uv_cache: Annotated[DevicePath, Meta(description="UV_CACHE_DIR of a compile.")] = "/data/root-uv-cache"
    tmp: Annotated[DevicePath, Meta(description="TMPDIR of a compile.")] = "/data/root-tmp"


class Timeouts(Raw):
    """Seconds."""

    connect: Seconds = 10.0
    idle: Annotated[Seconds, Meta(description="Silence on a link.")] = 30.0
    compile: Annotated[Seconds, Meta(description="The whole job.")] = 3600.0
    validate: Annotated[Seconds, Meta(description="The whole job.")] = 300.0


class Device(Raw):
    """A device that compiles, and perhaps runs, models."""

    transport: Annotated[Literal["local", "ssh"], Meta(description="local: a directory here.")] = "ssh"
    host: Annotated[str | None, _text(words.host), Meta(description="Name, address or Host of ~/.ssh/config.")] = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    user: Annotated[str | None, _text(words.user), Meta(description="The guide's is iq.")] = None
    identity: Annotated[LocalPath | None, Meta(description="Private key file.")] = None
    known_hosts: Annotated[
        LocalPath | None, Meta(description="Instead of known_hosts beside models.yaml; ~/.ssh/known_hosts counts too.")
    ] = None
    proxy_jump: Annotated[str | None, _text(words.jump), Meta(description="[user@]host[:port], by commas.")] = None
    agent: Annotated[bool, Meta(description="Ask the ssh agent for keys.")] = False
    sudo: Annotated[bool | None, Meta(description="Compile and install as root. Default: over ssh.")] = None
    profile: Annotated[Name | None, Meta(description="Instead of the model's, for what it compiles.")] = None
    tags: Annotated[tuple[Name, ...], Meta(description="What models may ask for.")] = ()
    install: Annotated[bool | None, Meta(description="doit alone installs and validates. Default: on local.")] = None
    compile_script: Annotated[
        str, _text(words.compile_script), Meta(description="builtin, or a path on the device.")
    ] = "builtin"
    sync_sconscript: Annotated[
        LocalPath | None, Meta(description="File here that replaces the device's SConscript first (guide 1).")
    ] = None
    keep_backups: Annotated[int, Meta(ge=1, le=1000, description="Of each installed artifact.")] = 3
    goal: Annotated[
        Literal["verify", "install", "validate"] | None,
        Meta(description="How far a bare `doit` goes: by default `validate` where `install` is true, else `verify`."),
    ] = None
    validate_seconds: Annotated[
        float, Meta(ge=0.5, le=3600, description="How long a validation drives an artifact, at 20 frames a second.")
    ] = 10.0
    paths: Annotated[DevicePaths | None, Meta(description="Only those that differ.")] = None
    timeouts: Annotated[Timeouts | None, Meta(description="Only those that differ.")] = None


class Target(Raw):
    """A place that artifacts are published to."""

    repository: Annotated[PlainText, Meta(description="Folder of the clone or share; OWNER/NAME on Hugging Face.")]
    kind: Annotated[Literal["git", "folder", "huggingface"], Meta(description="What it is.")] = "git"
    remote: Annotated[Name, Meta(description="Of the clone.")] = "origin"
    branch: Annotated[str, _text(words.git_ref), Meta(description="Must be checked out.")] = "main"
    directory: Annotated[str, _text(words.directory), Meta(description="Of a model, inside the repository.")] = (
        "models/recompiled16/model-{folder}"
    )
    manifests: Annotated[tuple[InnerPath, ...], Meta(description="JSON files that name the artifact.")] = (
        "docs/model_selector_b.json",
        "docs/model_fetcher_b.json",
    )
    succeeds: Annotated[
        tuple[InnerPath, ...],
        Meta(description="Manifests of the catalog before, in the same order: bundles come from there one by one."),
    ] = ()
    files: Annotated[Name | None, Meta(description="Target that takes the artifacts; this one has the manifests.")] = (
        None
    )
    message: Annotated[str, _text(words.message), Meta(description="Of the commit.")] = (
        "Recompile {display_name} with {changes}"
    )
    url: Annotated[
        str | None,
        _text(words.target_url),
        Meta(description="Of a file, or its beginning. Default: what the manifest has."),
    ] = None
    large_files: Annotated[
        Literal["plain", "lfs", "chunks"] | None, Meta(description="Default: as the file is there now.")
    ] = None
    author: Annotated[str | None, _text(words.author), Meta(description="Default: git's own.")] = None
    sandbox: Annotated[bool, Meta(description="Takes samples and CPU artifacts; no device reads it.")] = False
    confirm_timeout: Annotated[
        Seconds, Meta(description="Until a push must be visible, by URL and in a device's list.")
    ] = 600.0
    policy: Annotated[
        tuple[Literal["harness", "onroad"], ...] | None,
        Meta(description="Proofs that a publish needs. Default: both; in a sandbox the harness."),
    ] = None


class File(Raw):
    """What should exist: models, and where and how they are made."""

    models: Annotated[dict[ModelName, Model], Meta(description="By the name that doit calls them.")]
    defaults: Annotated[ModelDefaults | None, Meta(description="For models that do not say otherwise.")] = None
    profiles: Annotated[dict[Name, Profile] | None, Meta(description="Sets of compile flags.")] = None
    devices: Annotated[dict[Name, Device] | None, Meta(description="Machines that compile.")] = None
    targets: Annotated[dict[Name, Target] | None, Meta(description="Places to publish to.")] = None
