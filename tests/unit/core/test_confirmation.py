"""What a download through a device's selector shows, judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from buildlib.core.confirmation import artifacts_of, endangered, judge_download
from buildlib.core.manifests.manifest import Entry

NAME, SHA, URL = "a.pkl", "a" * 64, "https://host/a%20b/a.pkl"
ENTRY = Entry(file_name=NAME, sha256=SHA, url=URL)


def status(state: str = "ok", **changes: Any) -> dict[str, Any]:
    report = {
        "format": 1,
        "outcome": "downloaded",
        "listed": {NAME: SHA},
        "files": {NAME: SHA},
        "active": {NAME: {"sha256": SHA, "url": URL}},
        "active_name": "A",
        **changes,
    }
    return {"state": state, "exit": 0 if state == "ok" else 1, "reason": "exit status 1", "report": report}


def code(told: dict[str, Any]) -> str | None:
    finding = judge_download(told, (ENTRY,))
    return finding.code if finding else None


def test_exactly_what_was_published_downloaded_and_selected_is_good() -> None:
    assert code(status()) is None


def test_a_bundle_that_tells_no_url_is_good_too() -> None:
    assert code(status(active={NAME: {"sha256": SHA, "url": ""}})) is None
    assert judge_download(status(), (Entry(file_name=NAME, sha256=SHA),)) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"files": {NAME: "b" * 64}}, "other_bytes"),
        ({"files": {}}, "other_bytes"),
        ({"active": {NAME: {"sha256": "b" * 64, "url": URL}}}, "not_selected"),
        ({"active": {}}, "not_selected"),
        ({"active": {NAME: {"sha256": SHA, "url": "https://other/a.pkl"}}}, "other_url"),
        ({"format": 2}, "no_report"),
    ],
)
def test_a_script_that_calls_it_good_is_not_believed(changes: dict[str, Any], expected: str) -> None:
    assert code(status(**changes)) == expected


@pytest.mark.parametrize(
    "outcome", ["silent", "not_visible", "no_index", "gave_up", "other_bytes", "not_selected", "too_slow"]
)
def test_every_bad_outcome_is_a_finding_with_a_remedy(outcome: str) -> None:
    finding = judge_download(status("failed", outcome=outcome, files={NAME: None}, listed={}), (ENTRY,))
    assert finding is not None
    assert finding.code == outcome
    assert finding.remedy
    assert finding.guide == "16"


def test_a_device_with_the_old_hash_in_its_list_says_which() -> None:
    finding = judge_download(status("failed", outcome="not_visible", listed={NAME: "b" * 64}), (ENTRY,))
    assert finding is not None
    assert "not visible yet" in finding.what
    assert finding.found == f"sha256 {'b' * 64}"


@pytest.mark.parametrize("state", ["onroad", "timeout", "lost", "cancelled", "input_changed"])
def test_a_job_that_was_ended_from_outside_proves_nothing(state: str) -> None:
    assert code(status(state)) == state


def test_a_job_without_a_report_is_a_finding() -> None:
    assert code({"state": "failed", "reason": "signal 9", "report": None}) == "no_report"


def test_of_two_artifacts_the_bad_one_is_named() -> None:
    other = Entry(file_name="b.pkl", sha256="b" * 64)
    finding = judge_download(status(), (ENTRY, other))
    assert finding is not None
    assert "b.pkl" in finding.what


def bundle(sha256: str, *, camel: bool) -> str:
    names = ("fileName", "downloadUri", "uri") if camel else ("file_name", "download_uri", "url")
    artifact = {names[0]: NAME, names[1]: {names[2]: URL, "sha256": sha256.upper()}, "chunks": [{names[0]: "x"}]}
    return json.dumps({"models": [{"artifact": artifact}]})


@pytest.mark.parametrize("camel", [True, False])
def test_a_bundles_artifacts_are_read_in_both_spellings(camel: bool) -> None:
    assert artifacts_of(bundle(SHA, camel=camel)) == {NAME: SHA}


@pytest.mark.parametrize("text", [None, "", "{", "[]", "3", '{"models": null}'])
def test_no_bundle_names_nothing(text: str | None) -> None:
    assert artifacts_of(text) == {}


def test_a_file_that_a_running_manager_will_replace_is_told() -> None:
    health = {"active_bundle": bundle("b" * 64, camel=True), "model_manager": ["pid 7: models.manager"]}
    (text,) = endangered(health, {NAME: SHA, "other.pkl": "c" * 64})
    assert "bbbbbbbbbbbb" in text
    assert "delete or replace aaaaaaaaaaaa" in text


@pytest.mark.parametrize(
    "health",
    [
        {"active_bundle": bundle(SHA, camel=True), "model_manager": ["pid 7"]},
        {"active_bundle": bundle("b" * 64, camel=True), "model_manager": []},
        {"active_bundle": None, "model_manager": ["pid 7"]},
        {},
    ],
    ids=["the same bytes", "no manager", "no bundle", "an old probe"],
)
def test_nothing_is_told_without_a_danger(health: dict[str, Any]) -> None:
    assert endangered(health, {NAME: SHA}) == []
