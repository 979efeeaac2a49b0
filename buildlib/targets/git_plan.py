"""What a publish puts into the next commit: files first, then the manifests' new bytes."""

from __future__ import annotations

from collections.abc import Mapping

from buildlib.core.catalog import Model, Target
from buildlib.core.manifests import release
from buildlib.core.manifests.catalog_release import NewCatalog
from buildlib.core.manifests.manifest import Entry, tinygrad_ref
from buildlib.errors import TargetError
from buildlib.ports.target import Request
from buildlib.targets import git_tree
from buildlib.targets.git_commands import Git
from buildlib.targets.git_files import plan_file, stage_file
from buildlib.targets.git_tree import REGULAR, TreeEdit, TreeFile
from buildlib.targets.publication import (
    ManifestPlan,
    Plan,
    change_for,
    check_catalog_paths,
    check_confined,
    check_tinygrad,
    entries_in,
    former_entries,
    placed_plans,
    taken_over,
    with_manifest_url,
)


def make_plan(git: Git, target: Target, request: Request, base: str, known: Mapping[str, str]) -> Plan:
    """Compares a commit with what is asked for. Stores nothing. Raises TargetError and RailRefused."""
    check_rails(git, target, request, base)
    directory = release.directory(target, request.model)
    tree = git_tree.files_at(git, base, directory, *target.manifests, *target.succeeds)
    planned = placed_plans(request)
    if planned is None:
        planned = tuple(plan_file(git, target, request.model, one, directory, tree, known) for one in request.artifacts)
    manifests = {path: _manifest(git, tree, path) for path in target.manifests}
    former = taken_over(
        target, request.model, lambda path: git_tree.blob(git, tree[path].oid) if path in tree else None
    )
    change = change_for(request, planned, former)
    result = []
    for path, (old, mode) in manifests.items():
        result.append(ManifestPlan(path=path, old=old, new=change.apply(old, path), mode=mode))
    if change.kind == "set":
        planned = tuple(with_manifest_url(file, result, request.model) for file in planned)
    return Plan(base=base, files=planned, manifests=tuple(result), change=change)


def entries_at(git: Git, target: Target, model: Model, commit: str) -> dict[str, dict[str, Entry]]:
    """manifest -> file name -> entry, in a commit; what is missing is left out."""
    tree = git_tree.files_at(git, commit, *target.manifests)
    return {
        path: entries_in(git_tree.blob(git, tree[path].oid), path, model) for path in target.manifests if path in tree
    }


def manifests_at(git: Git, target: Target, commit: str) -> dict[str, bytes]:
    """manifest -> bytes in a commit. Raises TargetError where one is missing."""
    tree = git_tree.files_at(git, commit, *target.manifests)
    return {path: _manifest(git, tree, path)[0] for path in target.manifests}


def catalog_edits(git: Git, base: str, catalog: NewCatalog) -> tuple[TreeEdit, ...]:
    """What a new catalog adds to a commit; () where it is there. Raises TargetError where its paths are taken."""
    tree = git_tree.files_at(git, base, *(one.path for one in catalog.manifests))
    there = {path: git_tree.blob(git, file.oid) for path, file in tree.items()}
    check_catalog_paths(catalog, there)
    return tuple(
        TreeEdit(path=one.path, oid=git_tree.stage_plain(git, one.path, one.data))
        for one in catalog.manifests
        if one.path not in there
    )


def any_entries(git: Git, target: Target, model: Model, commit: str) -> tuple[Entry, ...]:
    """A model's entries in a commit, one an artifact, from the first manifest that has it."""
    return former_entries(entries_at(git, target, model, commit))


def check_rails(git: Git, target: Target, request: Request, base: str) -> None:
    """What nothing overrides: samples stay in sandboxes, one tinygrad at one URL."""
    check_confined(target, request)
    check_tinygrad(request, *published_tinygrad(git, target, base))


def published_tinygrad(git: Git, target: Target, base: str) -> tuple[str | None, str]:
    """The tinygrad that the catalog was made with, by its manifests or our own commits; None where nothing tells."""
    tree = git_tree.files_at(git, base, *target.manifests)
    for path in target.manifests:
        if path in tree and (ref := tinygrad_ref(git_tree.blob(git, tree[path].oid), path)):
            return ref, path
    directory = release.fixed_part(target.directory)
    told = git.text(
        "log",
        "-1",
        "--format=%(trailers:key=Tinygrad,valueonly)",
        "--grep=^Tinygrad: ",
        base,
        "--",
        directory or ".",
        *target.manifests,
    ).strip()
    return (told.split("\n")[0] or None), directory


def stage(git: Git, plan: Plan) -> tuple[TreeEdit, ...]:
    """Stores the plan's bytes as git objects, each read back by its hash; the edits that a tree needs."""
    edits: list[TreeEdit] = []
    for file in plan.files:
        if not file.present:
            edits += stage_file(git, file)
    for manifest in plan.manifests:
        if manifest.new != manifest.old:
            edits.append(
                TreeEdit(
                    path=manifest.path, oid=git_tree.stage_plain(git, manifest.path, manifest.new), mode=manifest.mode
                )
            )
    return tuple(edits)


def _manifest(git: Git, tree: Mapping[str, TreeFile], path: str) -> tuple[bytes, str]:
    found = tree.get(path)
    if found is None or not found.mode.startswith("100"):
        raise TargetError(
            "no such manifest in the repository" if found is None else "the manifest is no regular file",
            where=path,
            remedy="correct `manifests` of the target in models.yaml, or commit the manifest first",
        )
    return git_tree.blob(git, found.oid), found.mode or REGULAR
