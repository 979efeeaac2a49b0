"""`doit catalog new`: after a tinygrad bump, a new directory and new manifests beside the old ones. Pure.

The old catalog stays as it is and serves older releases. The new manifests begin without the declared models: nothing
that they could name exists yet. Each bundle is taken over from the old manifest when its model is first published.
Bundles that models.yaml does not declare were made with the old tinygrad: a person says of each whether it goes along.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from buildlib.core.catalog import Model, Target
from buildlib.core.manifests import release
from buildlib.core.manifests.manifest import BundleInfo, Manifest, tinygrad_ref
from buildlib.core.manifests.manifest_edit import with_tinygrad_ref
from buildlib.core.manifests.manifest_style import Style, apply
from buildlib.errors import TargetError, UsageError

COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"[0-9a-f]{16,64}")
"""Stands for a commit in sandboxes, where tinygrad may come from a package that knows none."""
MOST_NAMED = 6
_AFTER_Z = {"z": "aa", "Z": "AA"}


@dataclass(frozen=True, kw_only=True)
class NewManifest:
    """path: of the new one; former: of the one that it succeeds; data: its bytes."""

    path: str
    former: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class NewCatalog:
    """A catalog about to begin. directory: the target's, with placeholders, as models.yaml should then say it.

    declared: short names that follow when their models are published. undecided: nothing begins while there are some.
    """

    tinygrad: str
    directory: str
    manifests: tuple[NewManifest, ...]
    declared: tuple[str, ...]
    kept: tuple[BundleInfo, ...]
    dropped: tuple[BundleInfo, ...]
    undecided: tuple[BundleInfo, ...]

    def message(self) -> str:
        """The commit's text."""
        name = release.fixed_part(self.directory)
        counts = f"{len(self.kept)} bundles kept, {len(self.dropped)} left behind, {len(self.declared)} to be published"
        return f"Start {name} for tinygrad {self.tinygrad[:12]}\n\n{counts}.\n\nTinygrad: {self.tinygrad}"

    def settings(self, target: str, files: str | None = None) -> str:
        """What models.yaml says from then on, as YAML. files: the target that takes the artifacts, if another one."""
        lines = ["targets:"]
        directory = f'    directory: "{self.directory}"'
        if files is not None:
            lines += [f"  {files}:", directory]
        lines += [f"  {target}:"] + ([directory] if files is None else [])
        for key, paths in (
            ("manifests", [one.path for one in self.manifests]),
            ("succeeds", [one.former for one in self.manifests]),
        ):
            lines += [f"    {key}:", *(f"      - {path}" for path in paths)]
        return "\n".join(lines)

    def require_decided(self) -> None:
        """Raises UsageError while it is not said of each undeclared bundle whether it goes along."""
        if self.undecided:
            names = [bundle.short_name for bundle in self.undecided]
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            raise UsageError(
                f"{len(names)} bundles are in no model of models.yaml, and nobody said what becomes of them",
                got=", ".join(names[:MOST_NAMED]) + more,
                remedy="--keep NAME,... for those that run with the new tinygrad as they are, --drop NAME,... or "
                "--drop '*' for the rest",
            )


def new_catalog(
    target: Target,
    models: Iterable[Model],
    manifests: Mapping[str, bytes],
    tinygrad: str,
    *,
    keep: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
) -> NewCatalog:
    """The catalog after the present one.

    models: those of this target. manifests: path -> bytes of the present ones. tinygrad: commit, 40 hex digits.
    keep, drop: short names of undeclared bundles, or patterns (`*`); an exact name goes before a pattern.
    Raises UsageError (a name that is none, or in both), TargetError (no next name, no bundles, the same tinygrad).
    """
    if not (COMMIT.fullmatch(tinygrad) or (target.sandbox and DIGEST.fullmatch(tinygrad))):
        raise UsageError("not a tinygrad commit", expected="40 hex digits in lower case", got=repr(tinygrad))
    read = {path: Manifest(data, path) for path, data in manifests.items()}
    for path, data in manifests.items():
        if read[path].bundle_list is None:
            raise TargetError("a plain list has no bundles to choose from", where=path, expected='a list of "bundles"')
        if tinygrad_ref(data, path) == tinygrad:
            raise TargetError("the catalog is for this tinygrad already", where=path, got=tinygrad[:12])
    declared = {(model.bundle.short_name, model.bundle.ref) for model in models if model.bundle is not None}
    others: dict[tuple[str, str | None], BundleInfo] = {}
    there: list[str] = []
    for manifest in read.values():
        for bundle in manifest.bundles():
            if _is_declared(bundle.short_name, bundle.ref, declared):
                there.append(bundle.short_name)
            else:
                others.setdefault((bundle.short_name, bundle.ref), bundle)
    _check_words({"keep": keep, "drop": drop}, [one.short_name for one in others.values()], there)
    chosen = {key: _fate(bundle.short_name, keep, drop) for key, bundle in others.items()}
    kept = {key for key, fate in chosen.items() if fate == "keep"}
    made = tuple(
        NewManifest(path=next_name(path), former=path, data=_selected(manifest, kept, tinygrad))
        for path, manifest in read.items()
    )
    return NewCatalog(
        tinygrad=tinygrad,
        directory=next_directory(target),
        manifests=made,
        declared=tuple(dict.fromkeys(there)),
        kept=tuple(bundle for key, bundle in others.items() if key in kept),
        dropped=tuple(bundle for key, bundle in others.items() if chosen[key] == "drop"),
        undecided=tuple(bundle for key, bundle in others.items() if chosen[key] is None),
    )


def next_name(path: str) -> str:
    """The next number or letter: `recompiled16` -> `recompiled17`, `model_selector_b.json` -> `model_selector_c.json`.

    A name that ends in neither gets a 2.
    """
    at = PurePosixPath(path)
    stem, suffix = (at.name[: -len(at.suffix)], at.suffix) if at.suffix else (at.name, "")
    if number := re.search(r"\d+$", stem):
        after = stem[: number.start()] + str(int(number.group()) + 1).zfill(len(number.group()))
    elif letter := re.search(r"(?<=[_.-])([a-z]|[A-Z])$", stem):
        one = letter.group()
        after = stem[: letter.start()] + (_AFTER_Z[one] if one in _AFTER_Z else chr(ord(one) + 1))
    else:
        after = stem + ("_2" if "_" in stem else "2")
    return str(at.with_name(after + suffix))


def next_directory(target: Target) -> str:
    """The target's directory with its fixed part moved on: `models/recompiled17/model-{folder}`."""
    fixed = release.fixed_part(target.directory)
    if not fixed:
        raise TargetError(
            "the target's directory has no part that a new catalog could change",
            where=f"targets.{target.name}.directory",
            expected="models/recompiled16/model-{folder} or the like",
            got=target.directory,
            remedy="make the new directory and manifests by hand, and point the target at them",
        )
    rest = target.directory.strip("/")[len(fixed) :]
    return _next_part(fixed) + rest


def _next_part(path: str) -> str:
    """A directory's name holds dots that are no suffix."""
    at = PurePosixPath(path)
    return str(at.with_name(next_name(at.name.replace(".", "\0")).replace("\0", ".")))


def _is_declared(short_name: str, ref: str | None, declared: set[tuple[str, str | None]]) -> bool:
    return (short_name, ref) in declared or (short_name, None) in declared


def _check_words(words: Mapping[str, tuple[str, ...]], known: list[str], declared: list[str]) -> None:
    for option, given in words.items():
        for word in given:
            if word in declared:
                raise UsageError(
                    f"{word} belongs to a model of models.yaml",
                    where=f"--{option}",
                    remedy="leave it out: it follows when its model is published, or take the model out of models.yaml",
                )
            if not any(fnmatch.fnmatchcase(name, word) or name == word for name in known):
                raise UsageError(f"no undeclared bundle is called {word!r}", where=f"--{option}")
    if both := set(words["keep"]) & set(words["drop"]):
        raise UsageError(f"{', '.join(sorted(both))} cannot be kept and dropped", where="--keep, --drop")


def _fate(name: str, keep: tuple[str, ...], drop: tuple[str, ...]) -> str | None:
    for option, given in (("keep", keep), ("drop", drop)):
        if name in given:
            return option
    found = [o for o, given in (("keep", keep), ("drop", drop)) if any(fnmatch.fnmatchcase(name, w) for w in given)]
    if len(found) > 1:
        raise UsageError(f"{name} is both kept and dropped", where="--keep, --drop", remedy="name it in one of them")
    return found[0] if found else None


def _selected(manifest: Manifest, kept: set[tuple[str, str | None]], tinygrad: str) -> bytes:
    listed = manifest.bundle_list
    assert listed is not None
    chosen = [
        node
        for node, bundle in zip(listed.items, manifest.bundles(), strict=True)
        if (bundle.short_name, bundle.ref) in kept
    ]
    data = apply(manifest.text, Style(manifest.text).chosen_items(listed, chosen)).encode()
    return with_tinygrad_ref(data, tinygrad, where=manifest.where)
