"""Paths, URLs, messages and piece names of a publication."""

import msgspec
import pytest

from buildlib.core.catalog import Bundle, Model, SampleSource, Target
from buildlib.core.manifests import release
from buildlib.errors import TargetError

NOPP = Model(
    name="nopp",
    display_name="No PP (June 26, 2026)",
    folder="No PP (June 26, 2026)-165",
    sources={"supercombo": SampleSource(seed=1)},
    artifacts={"supercombo": "driving_supercombo_nopp.pkl"},
    profile="qcom",
    bundle=Bundle(short_name="NOPP"),
)
TARGET = Target(name="iq", kind="git", repository="IQModels", url="https://host/raw/{branch}/{path}")


def test_the_guides_directory_and_the_encoded_url_come_out() -> None:
    directory = release.directory(TARGET, NOPP)
    assert directory == "models/recompiled16/model-No PP (June 26, 2026)-165"
    assert release.file_url(TARGET, NOPP, directory + "/a.pkl") == (
        "https://host/raw/main/models/recompiled16/model-No%20PP%20%28June%2026%2C%202026%29-165/a.pkl"
    )
    assert release.fixed_part(TARGET.directory) == "models/recompiled16"


def test_a_base_url_gets_the_path_and_no_url_leaves_the_manifests_own() -> None:
    assert release.file_url(msgspec.structs.replace(TARGET, url="https://h/x/"), NOPP, "a b") == "https://h/x/a%20b"
    assert release.file_url(msgspec.structs.replace(TARGET, url=None), NOPP, "a b") is None


@pytest.mark.parametrize("folder", ["../x", "a/../b", "a//b", "."])
def test_a_folder_that_leaves_the_repository_is_refused(folder: str) -> None:
    target = msgspec.structs.replace(TARGET, directory="{folder}")
    with pytest.raises(TargetError, match="leaves the repository"):
        release.directory(target, msgspec.structs.replace(NOPP, folder=folder))


def test_an_unknown_placeholder_is_named_with_those_that_exist() -> None:
    with pytest.raises(TargetError, match=r"unknown placeholder \{what\}.*\{display_name\}"):
        release.message(msgspec.structs.replace(TARGET, message="Redo {what}"), NOPP, "x")


def test_the_default_message_names_model_and_change() -> None:
    assert (
        release.message(TARGET, NOPP, "OPENPILOT_HACKS=1") == "Recompile No PP (June 26, 2026) with OPENPILOT_HACKS=1"
    )


def test_braces_that_stand_for_themselves_do() -> None:
    assert release.message(msgspec.structs.replace(TARGET, message="{{x}} {name}"), NOPP, "") == "{x} nopp"


def test_braces_in_a_display_name_are_not_placeholders() -> None:
    odd = msgspec.structs.replace(NOPP, display_name="{folder}")
    assert release.message(TARGET, odd, "x") == "Recompile {folder} with x"


@pytest.mark.parametrize(
    ("size", "count"), [(1, 1), (0, 1), (release.CHUNK_SIZE, 1), (release.CHUNK_SIZE + 1, 2), (119 * 10**6, 3)]
)
def test_pieces_are_49_mib_under_openpilots_names(size: int, count: int) -> None:
    names = release.chunk_names("a.pkl", size)
    assert names[-1] == f"a.pkl.chunk{count:02d}of{count:02d}"
    assert all(release.is_piece_of(name, "a.pkl") for name in (*names, "a.pkl.chunkmanifest"))
    assert not release.is_piece_of("a.pkl.chunk1of2x", "a.pkl")
    assert not release.is_piece_of("b.pkl.chunk01of02", "a.pkl")


@pytest.mark.parametrize(
    ("remote", "host"),
    [
        ("git@github.com:o/r.git", "github.com"),
        ("https://token@github.com/o/r", "github.com"),
        ("ssh://git@github.com:22/o/r", "github.com"),
        ("https://ssh.github.com/o/r", "ssh.github.com"),
        ("https://notgithub.com/o/r", None),
        ("/srv/git/origin.git", None),
        ("../origin.git", None),
        ("", None),
    ],
)
def test_hosts_with_a_limit_are_known_by_any_form_of_their_url(remote: str, host: str | None) -> None:
    limit = release.host_limit(remote)
    assert (limit[0] if limit else None) == host
