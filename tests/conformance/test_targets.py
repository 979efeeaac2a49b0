"""What every kind of target does alike."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from buildlib.core.catalog import Target as Settings
from buildlib.core.manifests.catalog_release import NewCatalog, new_catalog
from buildlib.core.manifests.manifest_edit import set_tinygrad_ref
from buildlib.errors import BuildError, RailRefused, TargetError
from buildlib.ports.target import Artifact, Published, Request, Target
from buildlib.sandbox import Sandbox, make_sandbox
from buildlib.targets.folder import Folder
from buildlib.targets.git_repository import GitRepository
from buildlib.targets.hugging_face import HuggingFace
from buildlib.targets.outgoing import check_bytes
from buildlib.targets.split import Split
from tests.integration.publish_kit import Desk, copy_sandbox, fetch_back, git, model
from tests.support.hub import REPOSITORY, HubServer

# The hub's own library, on its own HTTP client.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")

ARTIFACT = b"an artifact\n" * 1000
OTHER = b"another one\n" * 999


@dataclasses.dataclass
class Bench:
    """A target of some kind with sixty models in it."""

    desk: Desk
    kind: str
    make: Callable[[Settings], Target]
    share: Path | None = None
    """Where the artifacts are, if not with the manifests."""
    hub: Any = None

    @property
    def settings(self) -> Settings:
        return self.desk.settings

    @property
    def target(self) -> Target:
        return self.make(self.settings)

    def with_settings(self, **changes: Any) -> Target:
        return self.make(msgspec.structs.replace(self.settings, **changes))

    def request(self, name: str, data: bytes, **changes: object) -> Request:
        return self.desk.request(name, data, **changes)

    def holds(self, name: str, data: bytes) -> bool:
        wanted = model(name)
        return self.target.observe(wanted).holds({wanted.artifact: hashlib.sha256(data).hexdigest()})

    def files(self) -> dict[str, bytes]:
        if self.hub is not None:
            return dict(self.hub.files)
        hidden = (".git", ".supercombo-build")
        return {
            str(path.relative_to(root)): path.read_bytes()
            for root in filter(None, (self.desk.clone, self.share))
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.relative_to(root).parts[0] not in hidden
        }

    def edit(self, change: Callable[[bytes], bytes]) -> None:
        """Somebody else edits both manifests and publishes that."""
        if self.hub is not None:
            self.hub.add("by hand", {path: change(self.hub.files[path]) for path in self.settings.manifests})
            with contextlib.suppress(BuildError):
                self.target.inspect(self.request("nopp", b"a look at it"))
            return
        for manifest in self.settings.manifests:
            path = self.desk.clone / manifest
            path.write_bytes(change(path.read_bytes()))
        if self.kind != "folder":
            git(self.desk.clone, "commit", "-qam", "by hand")
            git(self.desk.clone, "push", "-q")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return make_sandbox(tmp_path_factory.mktemp("made") / "sand box")


def split_bench(desk: Desk, share: Path) -> Bench:
    """Artifacts on a share that shows them by URL, manifests in git."""
    (desk.clone / "models").rename(share / "models")
    git(desk.clone, "commit", "-qam", "The artifacts are on the share now")
    git(desk.clone, "push", "-q")

    def make(settings: Settings) -> Target:
        placed = msgspec.structs.replace(
            settings, kind="folder", manifests=(), succeeds=(), url=f"{share.as_uri()}/{{path}}"
        )
        back = fetch_back(share.parent / "back")
        return Split(settings.name, Folder(placed, share), GitRepository(settings, desk.clone), back)

    return Bench(desk, "split", make, share)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A hub of our own, empty."""
    pytest.importorskip("huggingface_hub", reason="needs the extra huggingface")
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    with HubServer() as server:
        yield server


@pytest.fixture(params=["git", "folder", "split", "huggingface"])
def bench(request: pytest.FixtureRequest, made: Sandbox, tmp_path: Path) -> Bench:
    desk = copy_sandbox(made, tmp_path / "sand box")
    if request.param == "huggingface":
        server = request.getfixturevalue("hub")
        server.add_directory(desk.clone)
        desk = desk.with_settings(kind="huggingface", repository=REPOSITORY)
        return Bench(
            desk, "huggingface", lambda settings: HuggingFace(settings, tmp_path / "seen", server.url), hub=server
        )
    root = desk.clone
    if request.param == "folder":
        desk = desk.with_settings(kind="folder")
        return Bench(desk, "folder", lambda settings: Folder(settings, root))
    if request.param == "split":
        (tmp_path / "the share").mkdir()
        return split_bench(desk, tmp_path / "the share")
    return Bench(desk, "git", lambda settings: GitRepository(settings, root))


def test_a_publication_stands_in_files_and_manifests_and_again_is_nothing(bench: Bench) -> None:
    before = bench.files()
    assert not bench.holds("nopp", ARTIFACT)
    published = bench.target.publish(bench.request("nopp", ARTIFACT))
    assert published.changed
    assert bench.holds("nopp", ARTIFACT)
    after = bench.files()
    assert {path for path in after if after[path] != before.get(path)} == set(published.paths)
    assert set(published.paths) == {bench.desk.artifact_path("nopp"), *bench.settings.manifests}
    assert published.former[0].sha256 != published.entries[0].sha256 == hashlib.sha256(ARTIFACT).hexdigest()
    assert not bench.target.publish(bench.request("nopp", ARTIFACT, build_time="2027-01-01T00:00:00Z")).changed
    assert bench.files() == after


def test_another_models_publication_leaves_the_first_alone(bench: Bench) -> None:
    bench.target.publish(bench.request("nopp", ARTIFACT))
    bench.target.publish(bench.request("drl3", OTHER))
    assert bench.holds("nopp", ARTIFACT)
    assert bench.holds("drl3", OTHER)


def test_inspect_tells_what_publish_would_do_and_changes_nothing(bench: Bench) -> None:
    before = bench.files()
    state = bench.target.inspect(bench.request("nopp", ARTIFACT))
    assert not state.refused
    assert [(change.path, change.new_size) for change in state.files] == [
        (bench.desk.artifact_path("nopp"), len(ARTIFACT))
    ]
    assert state.diff.count(hashlib.sha256(ARTIFACT).hexdigest()) == 2
    assert bench.files() == before


def test_unpublish_brings_the_former_bytes_back_once(bench: Bench) -> None:
    before = bench.files()
    with pytest.raises(TargetError, match="no publication to take back"):
        bench.target.unpublish(model("nopp"), "Take back")
    bench.target.publish(bench.request("nopp", ARTIFACT))
    bench.target.publish(bench.request("drl3", OTHER))
    assert bench.target.unpublish(model("nopp"), "Take back").changed
    assert not bench.holds("nopp", ARTIFACT)
    assert bench.holds("drl3", OTHER)
    bench.target.unpublish(model("drl3"), "Take back")
    assert bench.files() == before
    with pytest.raises(TargetError):
        bench.target.unpublish(model("nopp"), "Take back")


def test_a_hand_edited_entry_is_no_longer_what_was_published(bench: Bench) -> None:
    bench.target.publish(bench.request("nopp", ARTIFACT))
    sha256 = hashlib.sha256(ARTIFACT).hexdigest().encode()
    bench.edit(lambda data: data.replace(sha256, b"0" * 64))
    assert not bench.holds("nopp", ARTIFACT)


def test_somebody_elses_newer_entry_is_a_conflict_until_superseded(bench: Bench) -> None:
    request = bench.request("nopp", ARTIFACT)
    bench.target.publish(request)
    sha256 = request.artifacts[0].sha256
    bench.edit(lambda data: data.replace(sha256.encode(), b"e" * 64))
    after = bench.files()
    newer = bench.request("nopp", OTHER, last_published={request.artifacts[0].file_name: sha256})
    with pytest.raises(TargetError, match="somebody else has published"):
        bench.target.publish(newer)
    assert bench.target.inspect(newer).refused
    assert bench.files() == after
    bench.target.publish(dataclasses.replace(newer, supersede=True))
    assert bench.holds("nopp", OTHER)


def test_unpublish_takes_back_nothing_of_somebody_else(bench: Bench) -> None:
    bench.target.publish(bench.request("nopp", ARTIFACT))
    sha256 = hashlib.sha256(ARTIFACT).hexdigest()
    bench.edit(lambda data: data.replace(sha256.encode(), b"e" * 64))
    after = bench.files()
    with pytest.raises(TargetError, match="somebody else has published"):
        bench.target.unpublish(model("nopp"), "Take back")
    assert bench.files() == after


def test_publishing_after_our_own_unpublish_says_so_and_goes_on_with_supersede(bench: Bench) -> None:
    request = bench.request("nopp", ARTIFACT)
    bench.target.publish(request)
    bench.target.unpublish(model("nopp"), "Take back")
    last = {request.artifacts[0].file_name: request.artifacts[0].sha256}
    newer = bench.request("nopp", OTHER, last_published=last)
    with pytest.raises(TargetError, match="was unpublished since") as caught:
        bench.target.publish(newer)
    assert "to publish it again: doit publish:nopp --supersede" in str(caught.value.remedy)
    bench.edit(lambda data: data.replace(bench.desk.entry("nopp").sha256.encode(), b"e" * 64))
    with pytest.raises(TargetError, match="somebody else has published"):
        bench.target.publish(newer)
    bench.target.publish(dataclasses.replace(newer, supersede=True))
    assert bench.holds("nopp", OTHER)


def test_an_entry_built_later_than_ours_is_a_conflict(bench: Bench) -> None:
    bench.edit(lambda data: data.replace(b'"build_time": "2026-0', b'"build_time": "2027-0'))
    with pytest.raises(TargetError, match="somebody else has published"):
        bench.target.publish(bench.request("nopp", ARTIFACT))


def test_a_sample_goes_to_a_sandbox_only(bench: Bench) -> None:
    before = bench.files()
    with pytest.raises(RailRefused, match="made from a sample"):
        bench.with_settings(sandbox=False).publish(bench.request("nopp", ARTIFACT))
    assert bench.files() == before
    bench.with_settings(sandbox=False).publish(bench.request("nopp", ARTIFACT, confined=None))


def test_another_tinygrad_than_the_catalogs_is_refused(bench: Bench) -> None:
    bench.edit(lambda data: data.replace(b'{\n  "bundles"', b'{\n  "tinygrad_ref": "x",\n  "bundles"'))
    bench.edit(lambda data: set_tinygrad_ref(data, "0a1b77e0" * 5))
    before = bench.files()
    with pytest.raises(RailRefused, match="another tinygrad"):
        bench.target.publish(bench.request("nopp", ARTIFACT))
    assert bench.files() == before
    bench.target.publish(bench.request("nopp", ARTIFACT, tinygrad="0a1b77e0" * 5))


def test_bytes_that_are_not_those_verified_are_refused(bench: Bench) -> None:
    request = bench.request("nopp", ARTIFACT)
    request.artifacts[0].path.write_bytes(ARTIFACT[:100])
    before = bench.files()
    with pytest.raises(TargetError, match="not those that were verified"):
        bench.target.publish(request)
    assert bench.files() == before


def test_bytes_that_change_after_they_were_looked_at_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    request, before = bench.request("nopp", ARTIFACT), bench.files()

    def changed(artifact: Artifact) -> None:
        check_bytes(artifact)
        artifact.path.write_bytes(ARTIFACT[::-1])

    for module in ("git_files", "folder_files", "hugging_face"):
        monkeypatch.setattr(f"buildlib.targets.{module}.check_bytes", changed)
    with pytest.raises(BuildError):
        bench.target.publish(request)
    assert bench.files() == before


def test_a_manifest_without_the_entry_is_told_with_candidates(bench: Bench) -> None:
    bench.edit(lambda data: data.replace(b'"NOPP"', b'"NOPPY"'))
    with pytest.raises(TargetError, match=r'no bundle "NOPP".*NOPPY \(line \d+\)'):
        bench.target.publish(bench.request("nopp", ARTIFACT))


def test_a_new_bundle_comes_and_later_artifacts_reach_its_entry(bench: Bench) -> None:
    base = model("nopp")
    assert base.bundle is not None
    fresh = msgspec.structs.replace(
        base,
        name="fresh",
        display_name="Fresh (December 1, 2026)",
        folder="Fresh (December 1, 2026)-200",
        artifacts={"supercombo": "driving_fresh.pkl"},
        bundle=msgspec.structs.replace(base.bundle, short_name="FRESH"),
    )

    def asked(data: bytes) -> Request:
        request = bench.request("nopp", data)
        artifact = dataclasses.replace(request.artifacts[0], file_name="driving_fresh.pkl")
        return dataclasses.replace(request, model=fresh, artifacts=(artifact,), new_bundle={"is_20hz": True})

    before = bench.files()
    for data in (ARTIFACT, OTHER):
        bench.target.publish(asked(data))
        sha256 = hashlib.sha256(data).hexdigest()
        assert bench.target.observe(fresh).holds({"driving_fresh.pkl": sha256})
    assert len(bench.files()) == len(before) + 1


def started(bench: Bench, *, tinygrad: str = "0a1b77e0" * 5) -> tuple[NewCatalog, Published]:
    """A new catalog that leaves the 57 bundles behind which no model declares."""
    made: list[NewCatalog] = []

    def make(manifests: Mapping[str, bytes]) -> NewCatalog:
        models = [model(name) for name in ("tobyrl", "nopp", "drl3")]
        made.append(new_catalog(bench.settings, models, manifests, tinygrad, drop=("*",)))
        return made[-1]

    published = bench.target.start_catalog(make)
    return made[-1], published


def test_a_new_catalog_stands_beside_the_old_one_and_its_models_come_one_by_one(bench: Bench) -> None:
    before = bench.files()
    catalog, published = started(bench)
    after = bench.files()
    assert published.changed
    assert {path: after[path] for path in before} == before
    assert set(after) - set(before) == set(published.paths) == {one.path for one in catalog.manifests}
    assert not started(bench)[1].changed
    new = bench.with_settings(
        directory=catalog.directory,
        manifests=tuple(one.path for one in catalog.manifests),
        succeeds=tuple(one.former for one in catalog.manifests),
    )
    with pytest.raises(RailRefused, match="another tinygrad"):
        new.publish(bench.request("nopp", ARTIFACT))
    for name, data in (("drl3", OTHER), ("nopp", ARTIFACT)):
        request = bench.request(name, data, tinygrad="0a1b77e0" * 5)
        assert new.inspect(request).diff.count("+") > 10
        url = new.publish(request).entries[0].url
        assert url is not None
        assert "/models/recompiled17/model-" in url
        assert new.observe(model(name)).holds({request.artifacts[0].file_name: request.artifacts[0].sha256})
        assert not new.publish(request).changed
    end = bench.files()
    assert {path: end[path] for path in before} == before
    new.unpublish(model("nopp"), "Take it back")
    new.unpublish(model("drl3"), "Take it back")
    assert bench.files() == after


def test_a_new_catalogs_url_follows_the_old_one_where_the_target_gives_none(bench: Bench) -> None:
    catalog, _ = started(bench)
    new = bench.with_settings(
        url=None,
        directory=catalog.directory,
        manifests=tuple(one.path for one in catalog.manifests),
        succeeds=tuple(one.former for one in catalog.manifests),
    )
    entry = new.publish(bench.request("nopp", ARTIFACT, tinygrad="0a1b77e0" * 5)).entries[0]
    assert entry.url is not None
    assert entry.url.endswith(
        "/models/recompiled17/model-No%20PP%20%28June%2026%2C%202026%29-165/driving_supercombo_nopp.pkl"
    )


def test_a_new_catalog_replaces_no_file_of_somebody(bench: Bench) -> None:
    if bench.hub is not None:
        bench.hub.add("Ann's", {"docs/model_fetcher_c.json": b"{}"})
    else:
        (bench.desk.clone / "docs/model_fetcher_c.json").write_bytes(b"{}")
    before = bench.files()
    with pytest.raises(TargetError, match="there already"):
        started(bench)
    assert bench.files() == before


def test_abandon_with_nothing_waiting_is_nothing(bench: Bench) -> None:
    assert bench.target.abandon(model("nopp")) is None


def test_a_place_that_is_not_there_is_told(bench: Bench, tmp_path: Path) -> None:
    kind: Any = Folder if bench.kind == "folder" else GitRepository
    with pytest.raises(TargetError, match="not there"):
        kind(bench.settings, tmp_path / "gone").observe(model("nopp"))


def test_a_set_cancel_event_stops_and_leaves_all_as_it_was(bench: Bench) -> None:
    import threading

    from buildlib.errors import Cancelled

    cancel = threading.Event()
    cancel.set()
    before = bench.files()
    with pytest.raises(Cancelled):
        bench.target.publish(bench.request("nopp", ARTIFACT), cancel=cancel)
    assert bench.files() == before
