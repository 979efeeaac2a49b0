"""Publishing to a hub of our own that speaks Hugging Face's API: one commit, made by the hub, whole or not at all."""

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from buildlib.errors import InputChanged, RailRefused, TargetError
from buildlib.targets.hugging_face import HuggingFace
from buildlib.targets.split import Split
from tests.integration.publish_kit import Desk, fetch_back, model
from tests.support.hub import REPOSITORY, HubServer

pytest.importorskip("huggingface_hub", reason="needs the extra huggingface")

# The hub's own library, on its own HTTP client.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")

ARTIFACT = b"an artifact\n" * 1000
OTHER = b"another one\n" * 999


@dataclasses.dataclass
class Place:
    desk: Desk
    hub: HubServer
    state: Path

    def target(self, **changes: Any) -> HuggingFace:
        return HuggingFace(msgspec.structs.replace(self.desk.settings, **changes), self.state, self.hub.url)

    def holds(self, data: bytes) -> bool:
        wanted = model("nopp")
        return self.target().observe(wanted).holds({wanted.artifact: hashlib.sha256(data).hexdigest()})


@pytest.fixture
def place(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    with HubServer() as hub:
        hub.add_directory(desk.clone)
        yield Place(desk.with_settings(kind="huggingface", repository=REPOSITORY), hub, tmp_path / "state")


def test_one_commit_says_what_it_published_and_the_file_is_there_before_it(place: Place) -> None:
    place.target().publish(place.desk.request("nopp", ARTIFACT))
    assert len(place.hub.commits) == 2
    made = place.hub.commits[-1]
    sha256 = hashlib.sha256(ARTIFACT).hexdigest()
    assert made.title == "Recompile No PP (June 26, 2026) with OPENPILOT_HACKS=1"
    assert f"Artifact: driving_supercombo_nopp.pkl sha256:{sha256}" in made.message.splitlines()
    puts = [
        line for line in place.hub.asked if line.startswith(("PUT /lfs/", f"POST /api/models/{REPOSITORY}/commit/"))
    ]
    assert puts == [f"PUT /lfs/{sha256}", f"POST /api/models/{REPOSITORY}/commit/main"]


def test_observing_asks_nobody_and_knows_nothing_before_the_first_look(place: Place) -> None:
    target = place.target()
    assert target.observe(model("nopp")).problems == (f"{REPOSITORY} was not looked at yet",)
    target.inspect(place.desk.request("nopp", ARTIFACT))
    asked = len(place.hub.asked)
    seen = target.observe(model("nopp"))
    assert seen.problems == ()
    assert seen.files["driving_supercombo_nopp.pkl"] == place.desk.entry("nopp").sha256
    assert len(place.hub.asked) == asked


def test_a_commit_of_somebody_quicker_is_built_upon_and_both_stand(place: Place) -> None:
    path = place.desk.settings.manifests[0]
    place.hub.before_commit = lambda hub: hub.add(
        "Ann's", {path: hub.files[path].replace(b"TobyRL (May", b"Toby (May")}
    )
    place.target().publish(place.desk.request("nopp", ARTIFACT))
    assert [one.author for one in place.hub.commits] == ["ann", "ann", "publisher"]
    assert b"Toby (May" in place.hub.files[path]
    assert place.holds(ARTIFACT)


def test_somebody_quicker_with_the_same_entry_is_a_conflict_that_names_commit_and_author(place: Place) -> None:
    first = place.desk.request("nopp", ARTIFACT)
    place.target().publish(first)
    sha256 = first.artifacts[0].sha256
    changed = {
        path: place.hub.files[path].replace(sha256.encode(), b"e" * 64) for path in place.desk.settings.manifests
    }
    hers = place.hub.add("Ann's build", dict(changed), author="ann")
    place.hub.add("Something else", {"README.md": b"x"}, author="bob")
    newer = place.desk.request("nopp", OTHER, last_published={first.artifacts[0].file_name: sha256})
    with pytest.raises(TargetError, match=f"commit {hers.id[:10]} by ann: Ann's build"):
        place.target().publish(newer)
    assert len(place.hub.commits) == 4


def test_no_right_to_write_leaves_the_repository_as_it_was(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_reader")
    with pytest.raises(TargetError, match="no right to write") as caught:
        place.target().publish(place.desk.request("nopp", ARTIFACT))
    assert "hf auth login" in str(caught.value.remedy)
    assert "hf_reader" not in caught.value.render()
    assert len(place.hub.commits) == 1


def test_another_repository_is_told(place: Place) -> None:
    with pytest.raises(TargetError, match="no such repository"):
        place.target(repository="team/Nothing").publish(place.desk.request("nopp", ARTIFACT))
    with pytest.raises(TargetError, match='no branch "release": got main'):
        place.target(branch="release").publish(place.desk.request("nopp", ARTIFACT))


def test_a_connection_cut_before_the_commit_changes_nothing(place: Place) -> None:
    place.hub.broken.add(f"POST /api/models/{REPOSITORY}/commit/")
    with pytest.raises(TargetError, match="cannot be reached"):
        place.target().publish(place.desk.request("nopp", ARTIFACT))
    assert len(place.hub.commits) == 1
    place.hub.broken.clear()
    place.target().publish(place.desk.request("nopp", ARTIFACT))
    assert len(place.hub.commits) == 2


def test_a_commit_whose_answer_was_lost_is_found_and_not_made_twice(place: Place) -> None:
    other = HuggingFace(place.desk.settings, place.state.with_name("another desk"), place.hub.url)
    other.publish(place.desk.request("nopp", ARTIFACT))
    published = place.target().publish(place.desk.request("nopp", ARTIFACT))
    assert not published.changed
    assert len(place.hub.commits) == 2
    assert place.holds(ARTIFACT)


def test_an_artifact_that_changes_while_it_is_sent_is_not_committed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = place.desk.request("nopp", ARTIFACT)
    from buildlib.targets import hub

    whole = hub.Hub.commit

    def changed(self: Any, *arguments: Any) -> str:
        request.artifacts[0].path.write_bytes(OTHER)
        return whole(self, *arguments)

    monkeypatch.setattr(hub.Hub, "commit", changed)
    with pytest.raises(InputChanged):
        place.target().publish(request)
    assert len(place.hub.commits) == 1


def test_chunks_are_refused(place: Place) -> None:
    with pytest.raises(TargetError, match="takes large files whole"):
        place.target(large_files="chunks").publish(place.desk.request("nopp", ARTIFACT))


def test_unpublish_needs_no_upload(place: Place) -> None:
    before = place.hub.files
    place.target().publish(place.desk.request("nopp", ARTIFACT))
    place.hub.stored.clear()
    place.target().unpublish(model("nopp"), "Take back")
    assert place.hub.files == before
    assert place.hub.commits[-1].message.splitlines() == ["Unpublished: nopp"]
    with pytest.raises(TargetError, match="unpublished already"):
        place.target().unpublish(model("nopp"), "again")


def test_files_on_the_hub_and_manifests_in_git_are_downloaded_back_by_the_hubs_url(
    place: Place, desk: Desk, tmp_path: Path
) -> None:
    from buildlib.targets.git_repository import GitRepository

    files = place.target(manifests=(), url=None)
    target = Split("both", files, GitRepository(desk.settings, desk.clone), fetch_back(tmp_path / "back"))
    published = target.publish(desk.request("nopp", ARTIFACT))
    url = published.entries[0].url
    assert url == (
        f"{place.hub.url}/{REPOSITORY}/resolve/main/models/recompiled16/"
        "model-No%20PP%20%28June%2026%2C%202026%29-165/driving_supercombo_nopp.pkl"
    )
    assert desk.entry("nopp").url == url
    assert any(line.startswith(f"GET /{REPOSITORY}/resolve/main/models/") for line in place.hub.asked)
    assert place.hub.commits[-1].tree.keys() == place.hub.commits[0].tree.keys()
    with pytest.raises(RailRefused, match="another tinygrad"):
        files.publish(desk.request("drl3", OTHER, tinygrad="0a1b77e0" * 5))


def test_a_missing_library_is_told_with_the_way_to_get_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(TargetError, match="is not installed") as caught:
        place.target().publish(place.desk.request("nopp", ARTIFACT))
    assert "supercombo-build[huggingface]" in str(caught.value.remedy)


def test_a_file_that_the_hub_lost_is_told_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from buildlib.targets import hub

    whole = hub.Hub.commit

    def losing(self: hub.Hub, *arguments: Any) -> str:
        made = whole(self, *arguments)
        del place.hub.commits[-1].tree[place.desk.artifact_path("nopp")]
        return made

    monkeypatch.setattr(hub.Hub, "commit", losing)
    with pytest.raises(TargetError, match="other bytes than were sent") as caught:
        place.target().publish(place.desk.request("nopp", ARTIFACT))
    assert caught.value.got == "no such file"


def test_a_login_in_the_endpoint_reaches_no_manifest_and_no_error(place: Place) -> None:
    from buildlib.targets.hub import Hub

    secret = place.hub.url.replace("http://", "http://me:TOPSECRET@")
    assert "TOPSECRET" not in Hub(REPOSITORY, "main", secret).url("a b.pkl")
    with pytest.raises(TargetError) as caught:
        Hub(REPOSITORY, "main", "http://me:TOPSECRET@127.0.0.1:9").head()
    assert "TOPSECRET" not in caught.value.render()
