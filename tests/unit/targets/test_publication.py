"""What every kind of target refuses: another's work, a sample outside a sandbox, bytes for another tinygrad."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from buildlib.core.manifests.manifest import Entry
from buildlib.errors import RailRefused, TargetError
from buildlib.ports.target import Request
from buildlib.targets import conflict, publication
from tests.unit.core.worlds import make_subject

NAME = "driving_supercombo_nopp.pkl"
OURS, THEIRS, NEW = "a" * 64, "b" * 64, "c" * 64
SUBJECT = make_subject()
EARLIER, LATER = "2026-12-01T11:00:00Z", "2026-12-01T13:00:00Z"


def request(**changes: Any) -> Request:
    return Request(
        **{"model": SUBJECT.model, "artifacts": (), "message": "m", "build_time": "2026-12-01T12:00:00Z", **changes}
    )


def entry(sha256: str, build_time: str | None = EARLIER, name: str = NAME) -> Entry:
    return Entry(file_name=name, sha256=sha256, build_time=build_time, line=7)


@pytest.mark.parametrize(
    ("there", "last", "before", "theirs"),
    [
        (entry(NEW, LATER), None, None, False),
        (entry(NEW, LATER), OURS, entry(OURS), False),
        (entry(OURS), OURS, None, False),
        (entry(OURS, LATER), OURS, None, False),
        (entry(THEIRS), OURS, None, True),
        (entry(THEIRS, None), OURS, None, True),
        (entry(THEIRS), OURS, entry(OURS), True),
        (entry(OURS), OURS, entry(THEIRS), True),
        (entry(THEIRS, EARLIER), None, None, False),
        (entry(THEIRS, None), None, None, False),
        (entry(THEIRS, LATER), None, None, True),
        (entry(THEIRS, "2026-12-01T12:00:00Z"), None, None, False),
        (entry(THEIRS, EARLIER), None, entry(OURS), True),
        (entry(THEIRS, EARLIER), None, entry(THEIRS), False),
        (entry(THEIRS, LATER, "other.pkl"), None, None, False),
    ],
)
def test_an_entry_is_anothers_where_it_is_not_what_we_left_or_is_newer(
    there: Entry, last: str | None, before: Entry | None, theirs: bool
) -> None:
    asked = request(last_published={NAME: last} if last else {})
    assert conflict.is_conflict(asked, there, {NAME: NEW}, before) is theirs


@pytest.mark.parametrize("last", [{}, {NAME: OURS}])
@pytest.mark.parametrize("cut_off", [({NAME: THEIRS},), ({NAME: NEW}, {NAME: THEIRS}), ({"other.pkl": THEIRS},)])
def test_what_a_killed_publication_may_have_left_is_ours(
    cut_off: tuple[dict[str, str], ...], last: dict[str, str]
) -> None:
    asked = request(last_published=last, cut_off=cut_off)
    ours = any(NAME in one for one in cut_off)
    assert conflict.is_conflict(asked, entry(THEIRS, LATER), {NAME: NEW}, entry(OURS)) is not ours
    assert conflict.is_conflict(asked, entry("d" * 64, LATER), {NAME: NEW}, entry(OURS)) is True


@pytest.mark.parametrize(
    ("last", "before", "expected"), [(OURS, None, OURS), (None, entry(OURS), OURS), (None, None, "?")]
)
def test_a_refusal_says_what_was_expected_and_how_to_go_on(
    last: str | None, before: Entry | None, expected: str
) -> None:
    asked = request(last_published={NAME: last} if last else {})
    for unpublished, words in ((False, "somebody else has published"), (True, "was unpublished since")):
        made = conflict.refusal(asked, entry(THEIRS), where="w", got="g", unpublished=unpublished, before=before)
        assert words in made.what
        assert made.expected == f"sha256 {expected[:12]}"
        assert "doit publish:nopp --supersede" in str(made.remedy)


def test_only_what_we_left_is_taken_back() -> None:
    mine, other = entry(OURS), entry(THEIRS, name="other.pkl")
    conflict.require_ours(SUBJECT.model, (mine, other), {NAME: OURS})
    with pytest.raises(TargetError, match="somebody else has published"):
        conflict.require_ours(SUBJECT.model, (mine, entry(THEIRS)), {NAME: OURS})


def test_what_a_commit_published_is_read_from_its_trailers() -> None:
    message = f"Recompile\n\nArtifact: {NAME} sha256:{OURS}\nArtifact: a sha256:b sha256:{NEW}\nOther: x sha256:y\n"
    assert conflict.published_by(message) == {NAME: OURS, "a sha256:b": NEW}


def test_a_confined_artifact_goes_to_a_sandbox_only() -> None:
    sandbox = SUBJECT.catalog.targets["sandbox"]
    publication.check_confined(sandbox, request(confined="made from a sample"))
    publication.check_confined(replace(sandbox, sandbox=False), request())
    with pytest.raises(RailRefused, match="made from a sample"):
        publication.check_confined(replace(sandbox, sandbox=False), request(confined="made from a sample"))


@pytest.mark.parametrize("ours", ["2" * 40, None])
def test_bytes_for_another_or_an_unknown_tinygrad_replace_none(ours: str | None) -> None:
    publication.check_tinygrad(request(tinygrad=ours), None, "w")
    publication.check_tinygrad(request(tinygrad="1" * 40), "1" * 40, "w")
    with pytest.raises(RailRefused, match="another tinygrad"):
        publication.check_tinygrad(request(tinygrad=ours), "1" * 40, "w")
