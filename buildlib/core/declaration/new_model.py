"""`doit new NAME FILE|URL|REF`: what a new model's entry would be, guessed as the guide names things. Pure."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping, Sequence

import msgspec

from buildlib.core.catalog import GitSource, Kind, PathSource, UrlSource
from buildlib.core.declaration import names
from buildlib.core.sources.model_form import ROLES, check_source, guess_role
from buildlib.core.sources.onnx_inspection import OnnxInspection
from buildlib.errors import SourceError, UsageError

COMBINED = "combined"
"""Role of the one artifact that holds all networks of a split model."""
Origin = PathSource | UrlSource | GitSource
_WEB_FILE = re.compile(
    r"(?P<repository>https?://[^/]+/(?:datasets/)?[^/]+/[^/]+)/(?:-/)?(?:blob|raw|resolve)/(?P<ref>[^/]+)/(?P<path>.+)"
)
_WEB_HOSTS = ("github.com", "gitlab.com", "huggingface.co", "codeberg.org", "bitbucket.org")
_OFF = re.compile(r"off[_-]?policy", re.IGNORECASE)
_GIT = re.compile(r"(?:git\+)?(?P<repository>.+?)#(?P<ref>[^:#]+):(?P<path>.+)")


class NewModel(msgspec.Struct, frozen=True, kw_only=True):
    """An entry to be appended to models.yaml. sources and artifacts are by role."""

    name: str
    display_name: str
    folder: str
    kind: Kind
    sources: Mapping[str, Origin]
    artifacts: Mapping[str, str]
    short_name: str


def parse_origin(text: str) -> Origin:
    """Where a model comes from: a path, a URL (its sha256 still empty), or `REPOSITORY#REF:PATH`.

    The address of a file's page on a git host is taken as git: its raw bytes may be an LFS pointer, its branch moves.
    """
    page = _WEB_FILE.fullmatch(text)
    if page and (urllib.parse.urlsplit(text).hostname or "").removeprefix("www.") in _WEB_HOSTS:
        repository = page["repository"]
        suffix = "" if "huggingface.co" in repository or repository.endswith(".git") else ".git"
        path = urllib.parse.unquote(page["path"].partition("?")[0])
        return GitSource(repository=repository + suffix, ref=urllib.parse.unquote(page["ref"]), path=path)
    reference = _GIT.fullmatch(text)
    if reference and (text.startswith("git+") or "://" in text or ".git#" in text or "@" in reference["repository"]):
        return GitSource(repository=reference["repository"], ref=reference["ref"], path=reference["path"])
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        return UrlSource(url=text, sha256="")
    return PathSource(path=text)


def guess_kind(inspections: Sequence[OnnxInspection], texts: Sequence[str] = ()) -> tuple[Kind, tuple[str, ...]]:
    """Kind and the role of each ONNX, in the order given. Raises SourceError where they make no model.

    texts: their names. Of two policies only the name tells which is which; without, the first is the on-policy one.
    """
    guesses = [guess_role(inspection) for inspection in inspections]
    if guesses == ["supercombo"]:
        return "supercombo", ("supercombo",)
    policies = guesses.count("policy")
    if guesses.count("vision") == 1 and policies in (1, 2) and len(guesses) == policies + 1:
        kind: Kind = "vision_policy" if policies == 1 else "vision_multi_policy"
        left = list(ROLES[kind][1:])
        off_first = [bool(_OFF.search(text)) for text, guess in zip(texts, guesses, strict=False) if guess == "policy"]
        if off_first == [True, False]:
            left.reverse()
        roles = iter(left)
        return kind, tuple("vision" if guess == "vision" else next(roles) for guess in guesses)
    for number, (inspection, guess) in enumerate(zip(inspections, guesses, strict=True)):
        if guess not in ("supercombo", "vision", "policy"):
            raise _stranger(inspection, texts[number] if texts else None)
    got = " and ".join(str(guess) for guess in guesses) or "nothing"
    raise SourceError(
        "these files make no model",
        expected="one supercombo, or a vision with one or two policies",
        got=got,
        remedy="name every part: doit new NAME VISION.onnx POLICY.onnx (two policies: the on-policy one first)",
    )


def _stranger(inspection: OnnxInspection, text: str | None) -> SourceError:
    """The refusal of an ONNX that is no part of any model: which other one it is, and what to do."""
    problem = check_source(inspection, "supercombo", "supercombo")[0]
    return SourceError(problem.what, where=text, expected=problem.expected, got=problem.got, remedy=problem.remedy)


def guess_model(
    name: str, origins: Mapping[str, Origin], kind: Kind, *, taken: Mapping[tuple[str, str], str] | None = None
) -> NewModel:
    """The entry, named as the guide does: `driving_supercombo_NAME.pkl`, folder `model-FOLDER` of the source's path.

    origins: by role. taken: (folder, artifact), both folded, -> the model that has them.
    Raises UsageError for a name that models.yaml cannot take.
    """
    if wrong := names.model_name(name):
        raise UsageError("this name cannot be taken", where=name, expected=wrong, remedy="choose another name")
    folder = next((found for origin in origins.values() if (found := _folder(origin))), None)
    display_name = re.sub(r"-\d{1,5}$", "", folder).strip() if folder else name
    if names.plain_text(display_name):
        display_name = name
    folder = folder or name
    low = names.folded(name)
    if kind == "supercombo":
        artifacts = {"supercombo": f"driving_supercombo_{low}.pkl"}
    else:
        artifacts = {COMBINED: f"driving_{low}.pkl"}
    for artifact in artifacts.values():
        if owner := (taken or {}).get((names.folded(folder), names.folded(artifact))):
            raise UsageError(
                f"{artifact} in the folder {folder} is {owner}'s already",
                where=name,
                remedy=f"choose another name, or doit rebuild {owner}",
            )
    return NewModel(
        name=name,
        display_name=display_name,
        folder=folder,
        kind=kind,
        sources=origins,
        artifacts=artifacts,
        short_name=re.sub(r"[^A-Z0-9]", "", name.upper()) or name.upper(),
    )


def _folder(origin: Origin) -> str | None:
    """X of the nearest folder `model-X` in a source's path, where the catalog can take it."""
    if isinstance(origin, UrlSource):
        path = urllib.parse.unquote(urllib.parse.urlsplit(origin.url).path)
    else:
        path = origin.path
    for part in reversed(re.split(r"[/\\]", path)[:-1]):
        if part.startswith("model-") and len(part) > len("model-"):
            found = part.removeprefix("model-")
            return None if names.file_name(found) else found
    return None


def entry_values(model: NewModel) -> dict[str, object]:
    """The entry as plain values, in the order that models.yaml has them; what is by default is left out."""
    values: dict[str, object] = {"display_name": model.display_name}
    if model.folder != model.display_name:
        values["folder"] = model.folder
    if model.kind == "supercombo":
        values["source"] = _source_value(model.sources["supercombo"])
        values["artifact"] = model.artifacts["supercombo"]
    else:
        values["kind"] = model.kind
        values["sources"] = {role: _source_value(model.sources[role]) for role in ROLES[model.kind]}
        if set(model.artifacts) == {COMBINED}:
            values["artifact"] = model.artifacts[COMBINED]
        else:
            values["artifacts"] = dict(model.artifacts)
    values["bundle"] = {"short_name": model.short_name}
    return {key: _escaped(value) for key, value in values.items()}


def _source_value(origin: Origin) -> object:
    if isinstance(origin, PathSource):
        return origin.path
    if isinstance(origin, UrlSource):
        return {"kind": "url", "url": origin.url, "sha256": origin.sha256}
    return {"kind": "git", "repository": origin.repository, "ref": origin.ref, "path": origin.path}


def _escaped(value: object) -> object:
    """Dollar signs doubled: models.yaml reads `${...}` as a variable."""
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return value.replace("$", "$$") if isinstance(value, str) else value
