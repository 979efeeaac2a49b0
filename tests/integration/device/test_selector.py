"""A download through the device's own selector, as a job: what it proves, what it refuses, and that all comes back."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from buildlib.core.confirmation import judge_download
from buildlib.core.manifests.manifest import Entry
from tests.devices.manager import add_params_class, as_active, log_of, model_manager, wish
from tests.support.benches import Bench, until
from tests.support.scripts import lay_script

NAME, DATA = "driving_supercombo_nopp.pkl", b"the published bytes"
SHA = hashlib.sha256(DATA).hexdigest()
ACTIVE, INDEX = "ModelManager_ActiveBundle", "ModelManager_DownloadIndex"
HERE = pytest.mark.parametrize("bench", ["local"], indirect=True)
"""What the transport has no part in is tested on one."""
BEFORE = '{"internalName": "TOBYRL",  "displayName": "TobyRL", "models": []}'
MODELS = "/data/media/0/models"


class Shop:
    """The published side: a manifest and a file behind a server. sha256: what the manifest says of the file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        handler = partial(QuietHandler, directory=str(folder))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.publish(SHA)
        Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def publish(self, sha256: str) -> None:
        uri = {"url": f"{self.url}/{NAME}", "sha256": sha256}
        models = [{"type": "supercombo", "artifact": {"file_name": NAME, "download_uri": uri}}]
        self.bundle: dict[str, Any] = {
            "short_name": "NOPP",
            "display_name": "No PP",
            "index": 7,
            "ref": "0f" * 20,
            "models": models,
        }
        other = {**self.bundle, "short_name": "DRLV3", "display_name": "DRL V3", "index": 8, "ref": "1f" * 20}
        (self.folder / NAME).write_bytes(DATA)
        (self.folder / "manifest.json").write_text(json.dumps({"bundles": [other, self.bundle]}))

    @property
    def entry(self) -> Entry:
        return Entry(file_name=NAME, sha256=SHA, url=f"{self.url}/{NAME}")


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path / "shop")
    yield shop
    shop.server.shutdown()
    shop.server.server_close()


@pytest.fixture
def phone(bench: Bench, shop: Shop) -> Iterator[Bench]:
    """A device with another model selected, the artifact installed by hand, and a model manager that runs."""
    bench.param(ACTIVE, BEFORE)
    bench.param("ModelManager_LastSyncTime", "12")
    bench.write(f"{MODELS}/{NAME}", DATA)
    with model_manager(bench.root, f"{shop.url}/manifest.json"):
        yield bench


def start(bench: Bench, *, hand_over: float = 600, visible: float = 6, download: float = 6) -> None:
    script = "/data/supercombo-build/scripts/selector_download.py"
    lay_script("selector_download", bench.path(script).parent)
    report = "/data/supercombo-build/jobs/s/report.json"
    real = bench.link.real
    argv = [sys.executable, real(script), "--params", real("/data/params/d"), "--models", real(MODELS)]
    argv += ["--artifact", NAME, SHA, "--bundle", "NOPP", "--visible", str(visible), "--download", str(download)]
    argv += ["--grace", "0.6"]
    bench.link.call(
        "job_start",
        key="s",
        argv=[*argv, "--report", real(report)],
        env={"PYTHONPATH": real("/data/openpilot")},
        report=report,
        aside=[NAME],
        remember=[ACTIVE, "ModelManager_DownloadRef", INDEX],
        hand_over=hand_over,
        again=True,
    )


def param(bench: Bench, key: str) -> str | None:
    return bench.link.call("params_read", keys=[key])["values"][key]


def assert_as_before(bench: Bench) -> None:
    """Nothing of the test is left: selection byte for byte, no request, the file, no copy, no journal."""
    assert param(bench, ACTIVE) == BEFORE
    assert param(bench, INDEX) is None
    assert param(bench, "ModelManager_DownloadRef") is None
    assert bench.path(f"{MODELS}/{NAME}").read_bytes() == DATA
    assert bench.link.call("probe")["health"]["journals"] == []
    held = bench.path("/data/supercombo-build/held")
    assert not held.exists() or list(held.iterdir()) == []


@pytest.mark.parametrize("through", ["Params", "files"])
def test_the_file_is_downloaded_and_selected_and_then_everything_is_as_before(phone: Bench, shop: Shop, through: str):
    if through == "Params":
        add_params_class(phone.root)
    start(phone)
    status = phone.link.follow("s")
    assert status["state"] == "ok", status
    assert judge_download(status, (shop.entry,)) is None
    assert status["report"]["through"].startswith(through)
    assert status["report"]["asked"] == {INDEX: "7"}
    assert log_of(phone.root) == ["refreshed", f"downloaded {NAME}", "selected NOPP"]
    writes = phone.path("/data/params/class-writes")
    assert writes.exists() == (through == "Params")
    # The download stays until it was validated: a probe meanwhile leaves it.
    assert phone.link.call("probe")["health"]["undone"] == []
    assert json.loads(param(phone, ACTIVE) or "")["internalName"] == "NOPP"
    phone.link.call("recover", undo=[status["journal"]])
    assert_as_before(phone)


@HERE
def test_a_manager_that_takes_refs_only_is_asked_by_ref(phone: Bench, shop: Shop):
    wish(phone.root, by_ref=True)
    bundles = [{**shop.bundle, "index": None}]
    (shop.folder / "manifest.json").write_text(json.dumps({"bundles": bundles}))
    start(phone)
    status = phone.link.follow("s")
    assert status["report"]["asked"] == {"ModelManager_DownloadRef": "0f" * 20}
    assert judge_download(status, (shop.entry,)) is None


MISBEHAVIOUR = [
    ({"never_refreshes": True}, "silent"),
    ({"empty_list": True}, "not_visible"),
    ({"never_downloads": True}, "too_slow"),
    ({"other_bytes": True}, "gave_up"),
    ({"other_bytes": True, "keeps_anything": True}, "other_bytes"),
    ({"forgets_to_select": True}, "not_selected"),
    ({"other_url": "http://elsewhere.example/x.pkl"}, "other_url"),
]


@HERE
@pytest.mark.parametrize(("wishes", "code"), MISBEHAVIOUR, ids=[code for _, code in MISBEHAVIOUR])
def test_a_manager_that_misbehaves_is_named_and_everything_is_as_before(
    phone: Bench, shop: Shop, wishes: dict[str, Any], code: str
):
    wish(phone.root, **wishes)
    start(phone, visible=1, download=1 if code == "too_slow" else 8)
    status = phone.link.follow("s")
    finding = judge_download(status, (shop.entry,))
    assert finding is not None
    assert finding.code == code
    if "journal" in status:
        phone.link.call("recover", undo=[status["journal"]])
    assert_as_before(phone)


@HERE
def test_the_old_hash_in_the_list_is_not_visible_yet_and_nothing_is_downloaded(phone: Bench, shop: Shop):
    shop.publish("a" * 64)
    start(phone, visible=1)
    finding = judge_download(phone.link.follow("s"), (shop.entry,))
    assert finding is not None
    assert (finding.code, finding.found) == ("not_visible", f"sha256 {'a' * 64}")
    assert not any("downloaded" in line or "gave up" in line for line in log_of(phone.root))
    assert_as_before(phone)


@HERE
def test_onroad_ends_it_within_two_seconds_and_what_it_changed_comes_back_offroad(phone: Bench, shop: Shop):
    wish(phone.root, slow=60)
    start(phone, download=60)
    until(lambda: param(phone, INDEX) == "7")
    phone.param("IsOnroad", "1")
    status = phone.link.follow("s")
    assert status["state"] == "onroad"
    finding = judge_download(status, (shop.entry,))
    assert finding is not None
    assert finding.code == "onroad"
    assert phone.link.call("probe")["health"]["pending"]
    phone.param("IsOnroad", "0")
    assert phone.link.call("probe")["health"]["undone"]
    assert_as_before(phone)


def test_killed_in_the_middle_it_is_put_back_by_the_next_probe(phone: Bench):
    wish(phone.root, slow=60)
    start(phone, download=60)
    until(lambda: param(phone, INDEX) == "7")
    about = json.loads(phone.path("/data/supercombo-build/jobs/s/job.json").read_text())
    os.kill(about["pid"], signal.SIGKILL)
    os.kill(about["child"]["pid"], signal.SIGKILL)
    phone.link.call("probe")
    assert_as_before(phone)


def test_when_the_workstation_is_gone_the_device_puts_back_by_itself(phone: Bench):
    start(phone, hand_over=1)
    assert phone.link.follow("s")["state"] == "ok"
    parameter = phone.path("/data/params/d") / ACTIVE
    until(lambda: parameter.read_text() == BEFORE)
    assert_as_before(phone)


@HERE
def test_what_somebody_selects_meanwhile_stays(phone: Bench, shop: Shop):
    start(phone)
    status = phone.link.follow("s")
    chosen = json.dumps(as_active({**shop.bundle, "short_name": "DRLV3", "ref": "1f" * 20}))
    phone.param(ACTIVE, chosen)
    said = phone.link.call("recover", undo=[status["journal"]])["undone"]
    assert any("changed by somebody else" in text for text in said)
    assert param(phone, ACTIVE) == chosen


@HERE
def test_a_file_that_was_not_there_before_goes_again(phone: Bench):
    phone.path(f"{MODELS}/{NAME}").unlink()
    start(phone)
    status = phone.link.follow("s")
    assert phone.path(f"{MODELS}/{NAME}").read_bytes() == DATA
    phone.link.call("recover", undo=[status["journal"]])
    assert not phone.path(f"{MODELS}/{NAME}").exists()


@HERE
def test_only_the_selectors_own_parameters_are_written(phone: Bench):
    add_params_class(phone.root)
    start(phone)
    phone.link.follow("s")
    written = phone.path("/data/params/class-writes").read_text()
    keys = {line.partition("=")[0] for line in written.splitlines()}
    assert keys <= {"ModelManager_LastSyncTime", INDEX}


@HERE
def test_other_parameters_are_not_put_back_by_a_job(phone: Bench):
    phone.start("x", "pass", remember=["ModelManager_ClearCache"])
    assert phone.link.follow("x")["state"] != "ok"


def test_a_selector_is_seen_by_its_parameters_its_process_or_its_class(bench: Bench, shop: Shop):
    argv, env = [sys.executable], {"PYTHONPATH": bench.link.real("/data/openpilot")}
    assert bench.link.call("selector", argv=argv, env=env)["present"] is False
    add_params_class(bench.root)
    assert bench.link.call("selector", argv=argv, env=env)["why"] == "Params knows ModelManager_DownloadIndex"
    with model_manager(bench.root, f"{shop.url}/manifest.json") as process:
        seen = until(lambda: (found := bench.link.call("selector"))["manager"] and found)
        assert str(process.pid) in seen["manager"][0]
        assert seen["present"] is True
    bench.param(ACTIVE, BEFORE)
    assert bench.link.call("selector")["active"] == BEFORE
