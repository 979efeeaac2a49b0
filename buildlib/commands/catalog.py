"""`doit catalog new [TARGET]`: after a tinygrad bump, a new directory and new manifests beside the old ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from buildlib import errors
from buildlib.commands.base import ProjectCommand, opt_yes
from buildlib.console.lines import Console
from buildlib.console.table import columns
from buildlib.core.catalog import Target
from buildlib.core.manifests.catalog_release import NewCatalog, new_catalog
from buildlib.core.manifests.manifest import BundleInfo
from buildlib.core.unknown_names import unknown_target
from buildlib.doit_parts.session import Session
from buildlib.plain_text import printable
from buildlib.steps.publish import tinygrad_of
from buildlib.steps.targets import open_target

_WORDS: dict[str, Any] = {"short": "", "type": str, "default": ""}
opt_tinygrad = {
    **_WORDS,
    "name": "tinygrad",
    "long": "tinygrad",
    "help": "commit of the new tinygrad, 40 hex digits (default: the one that the device was last seen with)",
}
opt_keep = {
    **_WORDS,
    "name": "keep",
    "long": "keep",
    "help": "short names or patterns, by commas: bundles of no model that go along as they are",
}
opt_drop = {
    **_WORDS,
    "name": "drop",
    "long": "drop",
    "help": "short names or patterns, by commas: bundles of no model that stay in the old catalog only",
}


class CatalogCommand(ProjectCommand):
    """Shows what would begin; with --yes, begins it. The old catalog is not touched and serves older releases."""

    name = "catalog"
    doc_purpose = "start a new catalog for a new tinygrad"
    doc_usage = "new [TARGET]"
    own_options = (opt_tinygrad, opt_keep, opt_drop, opt_yes)
    writes = True

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Plans, lists, and with --yes writes the new manifests."""
        settings = chosen_target(session, arguments)
        target = open_target(session.workspace, settings, cancel=session.cancel)
        tinygrad = options["tinygrad"] or seen_tinygrad(session, settings)

        def make(manifests: Mapping[str, bytes]) -> NewCatalog:
            planned = new_catalog(
                placed(session, settings),
                [model for model in session.workspace.catalog.models.values() if model.target == settings.name],
                manifests,
                tinygrad,
                keep=split(options["keep"]),
                drop=split(options["drop"]),
            )
            made.append(planned)
            return planned

        made: list[NewCatalog] = []
        print(printable("\n".join(as_lines(make(target.manifests())))))
        made[-1].require_decided()
        if not options["yes"]:
            print("Nothing was written; --yes begins it.")
            return 0
        published = target.start_catalog(make, Console(), session.cancel)
        commit = f" in {published.commit[:12]}" if published.commit else ""
        print(f"The new manifests {'stand' + commit if published.changed else 'stood there already'}.")
        print(f"Now in models.yaml:\n\n{made[-1].settings(settings.name, settings.files)}\n")
        print("Then, for each model: doit publish:MODEL confirm:MODEL")
        return 0


def chosen_target(session: Session, arguments: list[str]) -> Target:
    """The target named, or the one that all models are published to."""
    catalog = session.workspace.catalog
    if not arguments or arguments[0] != "new" or len(arguments) > 2:
        raise errors.UsageError("only a new catalog can be started", expected="doit catalog new [TARGET]")
    names = arguments[1:] or sorted({model.target for model in catalog.models.values() if model.target is not None})
    if len(names) == 1 and names[0] not in catalog.targets:
        raise unknown_target(names[0], catalog.targets)
    if len(names) != 1:
        raise errors.UsageError(
            "it is not clear which target is meant",
            expected=f"one of {', '.join(catalog.targets)}" if catalog.targets else "a target in models.yaml",
            remedy="doit catalog new TARGET",
        )
    return catalog.targets[names[0]]


def placed(session: Session, settings: Target) -> Target:
    """The target with the directory that the artifacts are in."""
    if settings.files is None:
        return settings
    return msgspec.structs.replace(settings, directory=session.workspace.catalog.targets[settings.files].directory)


def seen_tinygrad(session: Session, settings: Target) -> str:
    """The tinygrad of the devices that compile the target's models, as last seen; they must agree."""
    models = [model for model in session.workspace.catalog.models.values() if model.target == settings.name]
    devices = {session.device_of(model).name for model in models}
    seen = {device: tinygrad_of(session.workspace, device) for device in sorted(devices)}
    found = set(seen.values())
    if len(found) != 1 or None in found:
        raise errors.UsageError(
            "it is not known for which tinygrad the catalog is",
            got=", ".join(f"{device}: {(commit or 'never seen')[:12]}" for device, commit in seen.items()) or None,
            remedy="doit preflight, or --tinygrad COMMIT"
            if None in found
            else "say which: device=NAME, or --tinygrad COMMIT",
        )
    return str(found.pop())


def split(words: str) -> tuple[str, ...]:
    """Names by commas."""
    return tuple(word.strip() for word in words.split(",") if word.strip())


def as_lines(catalog: NewCatalog) -> Iterator[str]:
    """What would begin, for a person."""
    yield f"{catalog.directory}, tinygrad {catalog.tinygrad[:12]}"
    yield from (f"  A {one.path}  after {one.former}" for one in catalog.manifests)
    yield f"  {len(catalog.declared)} bundles follow when their models are published: {', '.join(catalog.declared)}"
    for title, bundles in (("kept as they are", catalog.kept), ("left behind", catalog.dropped)):
        if bundles:
            yield f"  {len(bundles)} {title}: {', '.join(bundle.short_name for bundle in bundles)}"
    if catalog.undecided:
        yield f"  {len(catalog.undecided)} are in no model of models.yaml:"
        yield from (f"    {line}" for line in columns([_row(bundle) for bundle in catalog.undecided]))


def _row(bundle: BundleInfo) -> list[str]:
    return [bundle.short_name, bundle.display_name, f"line {bundle.line}"]
