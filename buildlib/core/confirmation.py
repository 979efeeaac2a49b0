"""What became of a download through a device's own model selector (guide, section 16). Pure.

`judge_download` turns the job's final status, with the report in it (`device_scripts/selector_download.py`), into a
finding, or None where the device has exactly what was published and has selected it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from buildlib.core.manifests.manifest import Entry, folded
from buildlib.core.verdicts.findings import Finding, refuse

REPORT_FORMAT: Final = 1
GUIDE: Final = "16"


def judge_download(status: Mapping[str, Any], entries: tuple[Entry, ...]) -> Finding | None:
    """The first thing that is wrong. status: {state, reason, exit, report} of the job; entries: as published."""
    state, report = str(status.get("state")), status.get("report")
    if state not in ("ok", "failed"):
        return _ended_outside(state, status)
    if not isinstance(report, dict) or report.get("format") != REPORT_FORMAT:
        return refuse(
            "no_report",
            "the download through the selector gave no report",
            expected=f"a report of format {REPORT_FORMAT}",
            found=str(status.get("reason") or "none"),
            guide=GUIDE,
            remedy="see the log, then confirm again",
        )
    outcome = str(report.get("outcome"))
    if outcome != "downloaded":
        return _not_downloaded(outcome, report, entries)
    for entry in entries:
        finding = _differs(entry, report)
        if finding is not None:
            return finding
    return None


def _differs(entry: Entry, report: Mapping[str, Any]) -> Finding | None:
    """What the script calls good is compared once more, with the URL too."""
    on_disk = report.get("files", {}).get(entry.file_name)
    if on_disk != entry.sha256:
        return _other_bytes(entry, on_disk)
    active = report.get("active", {}).get(entry.file_name) or {}
    if active.get("sha256") != entry.sha256:
        return _not_selected(entry, report)
    url = active.get("url")
    if url and entry.url and url != entry.url:
        return refuse(
            "other_url",
            "the device's active bundle has another URL than was published",
            expected=entry.url,
            found=str(url),
            guide=GUIDE,
            remedy="compare the manifest that the device reads with the one that was published",
        )
    return None


def _not_downloaded(outcome: str, report: Mapping[str, Any], entries: tuple[Entry, ...]) -> Finding:
    entry = next((e for e in entries if report.get("files", {}).get(e.file_name) != e.sha256), entries[0])
    on_disk = report.get("files", {}).get(entry.file_name)
    if outcome == "silent":
        return refuse(
            "silent",
            "the device's model manager does not refresh its list",
            expected="ModelManager_LastSyncTime to move from 0",
            found="it stays 0",
            guide=GUIDE,
            remedy="see that the manager runs (it does offroad only) and that the device is online, then confirm again",
        )
    if outcome == "not_visible":
        listed = report.get("listed", {})
        missing = next((e for e in entries if listed.get(e.file_name) != e.sha256), entry)
        return refuse(
            "not_visible",
            f"{missing.file_name} is not visible yet in the device's list",
            expected=f"sha256 {missing.sha256}",
            found=f"sha256 {listed[missing.file_name]}" if missing.file_name in listed else "no such file",
            guide=GUIDE,
            remedy="hosts show old manifests for minutes after a push: confirm again, or raise confirm_timeout; "
            "if it stays, the device reads another manifest",
        )
    if outcome == "no_index":
        return refuse(
            "no_index",
            "the bundle has neither an index nor a ref that this device's manager takes",
            expected="`index` in the manifest",
            found=", ".join(sorted(report.get("listed", {}))) or "none",
            guide=GUIDE,
            remedy="give the bundle an index in the manifests",
        )
    if outcome == "not_selected":
        return _not_selected(entries[0], report)
    if outcome == "other_bytes":
        return _other_bytes(entry, on_disk)
    slow = outcome == "too_slow"
    return refuse(
        outcome,
        f"the device's model manager did not end the download of {entry.file_name}"
        if slow
        else f"the device's model manager gave up the download of {entry.file_name}",
        expected=f"sha256 {entry.sha256}",
        found=f"sha256 {on_disk}" if on_disk else "no file",
        guide=GUIDE,
        remedy="confirm again, or raise confirm_timeout"
        if slow
        else "a manager deletes what is not the manifest's: see whether the device gets the same bytes from the URL",
    )


def _other_bytes(entry: Entry, on_disk: str | None) -> Finding:
    return refuse(
        "other_bytes",
        f"the device downloaded other bytes for {entry.file_name} than were published",
        expected=f"sha256 {entry.sha256}",
        found=f"sha256 {on_disk}" if on_disk else "no file",
        guide=GUIDE,
        remedy="compare what the URL shows from the device's network with the published file",
    )


def _not_selected(entry: Entry, report: Mapping[str, Any]) -> Finding:
    sha256 = (report.get("active", {}).get(entry.file_name) or {}).get("sha256")
    name = report.get("active_name") or "no bundle"
    return refuse(
        "not_selected",
        f"the device downloaded {entry.file_name} and its active bundle is another",
        expected=f"sha256 {entry.sha256} in ModelManager_ActiveBundle",
        found=f"{name} with sha256 {sha256}" if sha256 else f"{name}, without that file",
        guide=GUIDE,
        remedy="see whether somebody selects a model on the device meanwhile, then confirm again",
    )


def _ended_outside(state: str, status: Mapping[str, Any]) -> Finding:
    what, remedy = _OUTSIDE.get(state, ("the download through the selector has not ended", "confirm again"))
    return refuse(
        state,
        what,
        expected="a download to its end",
        found=str(status.get("reason") or state),
        guide=GUIDE,
        remedy=remedy,
    )


_OUTSIDE: Final[Mapping[str, tuple[str, str]]] = {
    "onroad": ("the device went onroad, so the download was ended", "park the car, then confirm again"),
    "cancelled": ("the download through the selector was cancelled", "confirm again"),
    "timeout": ("the download through the selector did not end in time", "confirm again, or raise confirm_timeout"),
    "lost": ("the download was lost: the device was started anew, or the job was killed", "confirm again"),
}


def artifacts_of(bundle: str | None) -> dict[str, str]:
    """File name -> sha256 of the artifacts that a bundle's JSON names; empty for none and for what is no JSON."""
    try:
        value = json.loads(bundle) if bundle else None
    except (ValueError, RecursionError):
        return {}
    return dict(_named(value))


def _named(node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        fields = {folded(key): value for key, value in node.items()}
        download = fields.get("downloaduri") or fields.get("download")
        holder = {folded(key): value for key, value in download.items()} if isinstance(download, dict) else fields
        name, sha256 = fields.get("filename"), holder.get("sha256")
        if isinstance(name, str) and isinstance(sha256, str):
            yield name, sha256.lower()
        for key, value in node.items():
            if folded(key) != "chunks":
                yield from _named(value)
    elif isinstance(node, list):
        for item in node:
            yield from _named(item)


def endangered(health: Mapping[str, Any], installed: Mapping[str, str]) -> list[str]:
    """Files that the device's manager will delete or replace: its active bundle names them with other bytes.

    health: of a probe. installed: file name -> sha256 that lies on the device, or is about to.
    """
    if not health.get("model_manager"):
        return []
    named = artifacts_of(health.get("active_bundle"))
    return [
        f"the device's model manager runs and its active bundle has {name} with sha256 {named[name][:12]}: "
        f"it will delete or replace {sha256[:12]}"
        for name, sha256 in installed.items()
        if name in named and sha256 and named[name] != sha256
    ]
