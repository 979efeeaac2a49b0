"""The work behind `doit new NAME FILE|URL|REF ...`: look into the model, guess its entry, append it to models.yaml."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import msgspec

from buildlib.artifact.onnx_reader import inspect_onnx
from buildlib.core.catalog import Catalog, GitSource, PathSource, UrlSource
from buildlib.core.declaration import names
from buildlib.core.declaration.new_model import NewModel, Origin, entry_values, guess_kind, guess_model, parse_origin
from buildlib.core.declaration.yaml_append import append_entry
from buildlib.core.sources.lockfile import NAME as LOCK_NAME
from buildlib.core.sources.lockfile import Pin, render_lock
from buildlib.core.sources.model_form import check_source
from buildlib.core.sources.onnx_inspection import OnnxInspection
from buildlib.errors import SourceError, UsageError
from buildlib.ports.events import Events, Silent
from buildlib.ports.source import MovingSource, SourceContext
from buildlib.sources import git, path, url
from buildlib.store import files
from buildlib.store.lock_file import read_lock
from buildlib.store.workspace import CATALOG_NAME, Workspace


@dataclass(frozen=True, kw_only=True)
class Added:
    """What `add_model` did. line: of the entry in models.yaml. notes: worth saying. pins: written to models.lock."""

    model: NewModel
    line: int
    notes: tuple[str, ...]
    pins: Mapping[str, Pin]

    def text(self) -> str:
        """What to tell: the entry, what was guessed, and what to run next."""
        model = self.model
        artifacts = ", ".join(model.artifacts.values())
        lines = [
            f"{CATALOG_NAME}:{self.line}: added {model.name}, a {model.kind}",
            f"  display name  {model.display_name}",
            f"  folder        model-{model.folder}, in the models repository",
            f"  artifact      {artifacts}",
        ]
        lines += [f"  locked        {role} at {pin.commit[:12]} in {LOCK_NAME}" for role, pin in self.pins.items()]
        lines += [f"  note          {note}" for note in self.notes]
        return "\n".join([*lines, f"Look it over, then: doit {model.name}"])


def add_model(
    workspace: Workspace,
    name: str,
    texts: Sequence[str],
    *,
    events: Events | None = None,
    cancel: Event | None = None,
) -> Added:
    """Appends a model to models.yaml (and its pins to models.lock); what it had to fetch goes to the content store.

    texts: one source for a supercombo, one a part for split models; each a path, a URL or `REPOSITORY#REF:PATH`.
    Nothing is written unless all of it is good. Raises UsageError, SourceError, SourceUnavailable, CatalogError.
    """
    catalog = workspace.catalog
    if name in catalog.models:
        raise UsageError(
            "this model is there already", where=catalog.line(f"models.{name}"), remedy="choose another name"
        )
    if wrong := names.model_name(name):
        raise UsageError("this name cannot be taken", where=name, expected=wrong, remedy="choose another name")
    if not texts:
        raise UsageError("nothing to make it from", where=name, expected="doit new NAME FILE|URL|REPOSITORY#REF:PATH")
    if twice := next((text for number, text in enumerate(texts) if text in texts[:number]), None):
        raise UsageError("two parts of a model are the same file", where=twice, remedy="name each part once")
    incoming = workspace.state / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=incoming) as directory:
        parts = [
            _look(workspace, name, text, Path(directory) / f"{number}.onnx", events or Silent(), cancel)
            for number, text in enumerate(texts)
        ]
        kind, roles = guess_kind([part.inspection for part in parts], texts)
        by_role = dict(zip(roles, parts, strict=True))
        notes = [note for role, part in by_role.items() for note in _checked(part, kind, role)]
        origins = {role: part.origin for role, part in by_role.items()}
        model = guess_model(name, origins, kind, taken=_taken(catalog))
        pins = {role: part.pin for role, part in by_role.items() if part.pin is not None}
        for part in parts:
            if part.fetched is not None:
                workspace.blobs.add(part.fetched)
        line = _write(workspace, model, pins)
    return Added(model=model, line=line, notes=tuple(notes), pins=pins)


@dataclass(frozen=True, kw_only=True)
class _Part:
    text: str
    origin: Origin
    inspection: OnnxInspection
    fetched: Path | None
    pin: Pin | None


def _look(workspace: Workspace, name: str, text: str, into: Path, events: Events, cancel: Event | None) -> _Part:
    """Brings one source where it is not here, and inspects it."""
    origin = _origin(text)
    context = SourceContext(
        root=workspace.root,
        state=workspace.state / "sources",
        hash_file=files.hash_file,
        subject=name,
        events=events,
        cancel=cancel,
    )
    pin: Pin | None = None
    fetched: Path | None = into
    if isinstance(origin, PathSource):
        origin = _as_written(workspace, origin)
        path.Reader(origin, context).observe()
        fetched = None
        there = workspace.root / Path(origin.path).expanduser()
    elif isinstance(origin, UrlSource):
        sha256 = url.Reader(origin, context).fetch_unknown(into).sha256
        origin = msgspec.structs.replace(origin, sha256=sha256)
        there = into
    else:
        moving: MovingSource = git.Reader(origin, context)
        pin = moving.resolve()
        git.Reader(origin, replace(context, pin=pin)).fetch(into)
        there = into
    return _Part(text=text, origin=origin, inspection=inspect_onnx(there, where=text), fetched=fetched, pin=pin)


def _origin(text: str) -> Origin:
    """What a text names. A clone here needs no `git+` before it where no file has the whole text for its name."""
    origin = parse_origin(text)
    if isinstance(origin, PathSource) and not Path(text).expanduser().exists():
        reference = parse_origin(f"git+{text}")
        if isinstance(reference, GitSource) and Path(reference.repository).expanduser().is_dir():
            return reference
    return origin


def _as_written(workspace: Workspace, origin: PathSource) -> PathSource:
    """The path as models.yaml should say it: relative inside the project, else absolute."""
    given = Path(origin.path).expanduser()
    whole = given if given.is_absolute() else Path.cwd() / given
    try:
        inside = whole.resolve().relative_to(workspace.root.resolve())
    except (OSError, ValueError):
        return PathSource(path=origin.path if origin.path.startswith("~") else str(whole))
    return PathSource(path=inside.as_posix())


def _checked(part: _Part, kind: str, role: str) -> list[str]:
    problems = check_source(part.inspection, kind, role)  # type: ignore[arg-type]
    wrong = [problem for problem in problems if problem.severity == "error"]
    if wrong:
        more = "".join(f"; {problem.text()}" for problem in wrong[1:])
        raise SourceError(
            wrong[0].what + more,
            where=part.text,
            expected=wrong[0].expected or None,
            got=wrong[0].got or None,
            remedy=wrong[0].remedy,
        )
    return [problem.text() for problem in problems]


def _taken(catalog: Catalog) -> dict[tuple[str, str], str]:
    return {
        (names.folded(model.folder), names.folded(artifact)): model.name
        for model in catalog.models.values()
        for artifact in model.artifacts.values()
    }


def _write(workspace: Workspace, model: NewModel, pins: Mapping[str, Pin]) -> int:
    """Writes models.lock, then models.yaml, each whole; the entry's line. Nothing where the result is no catalog."""
    from buildlib.core.declaration.catalog_parser import parse_catalog

    catalog_file, lock_file = workspace.root / CATALOG_NAME, workspace.root / LOCK_NAME
    raw = catalog_file.read_bytes()
    mark = b"\xef\xbb\xbf" if raw.startswith(b"\xef\xbb\xbf") else b""
    text = raw.removeprefix(mark).decode()
    after = append_entry(text, "models", model.name, entry_values(model), path=CATALOG_NAME)
    catalog = parse_catalog(after, path=CATALOG_NAME, environ=workspace.environ)
    if pins:
        lock = read_lock(lock_file)
        for role, pin in pins.items():
            lock = lock.with_pin(model.name, role, pin)
        files.write(lock_file, render_lock(lock).encode())
    files.write(catalog_file, mark + after.encode())
    return catalog.lines.get(f"models.{model.name}", 0)
