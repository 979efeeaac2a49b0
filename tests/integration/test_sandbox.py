"""The sandbox is a working models repository with a server that behaves like a raw-file host."""

import hashlib
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from buildlib.errors import TargetError
from buildlib.sandbox import Sandbox, make_sandbox, open_sandbox
from buildlib.sandbox.manifests import GUIDE_MODELS
from tests.integration.publish_kit import Desk, git


def test_it_holds_sixty_bundles_in_the_real_form_with_the_guides_models_among_them(desk: Desk) -> None:
    for manifest in desk.settings.manifests:
        text = (desk.clone / manifest).read_text()
        bundles = json.loads(text)["bundles"]
        assert len(bundles) == 60
        assert {short for short, *_ in GUIDE_MODELS} <= {bundle["short_name"] for bundle in bundles}
        assert [bundle["index"] for bundle in bundles] == list(range(60))
        assert '      "overrides": { "folder": ' in text
        before = sum(list(b).index("build_time") < list(b).index("models") for b in bundles)
        assert 0 < before < 60
        assert "model-No%20PP%20%28June%2026%2C%202026%29-165/driving_supercombo_nopp.pkl" in text


def test_every_manifest_names_only_what_is_there(desk: Desk) -> None:
    for manifest in desk.settings.manifests:
        for bundle in json.loads((desk.clone / manifest).read_text())["bundles"]:
            artifact = bundle["models"][0]["artifact"]
            path = next(desk.clone.glob(f"models/*/*/{artifact['file_name']}"))
            assert hashlib.sha256(path.read_bytes()).hexdigest() == artifact["download_uri"]["sha256"]


def test_origin_is_bare_and_level_with_the_clone(desk: Desk) -> None:
    assert git(desk.sandbox.origin, "rev-parse", "--is-bare-repository") == "true"
    assert git(desk.clone, "rev-parse", "HEAD") == desk.head()
    assert git(desk.clone, "status", "--porcelain") == ""


def test_making_it_again_returns_it_and_something_else_is_not_overwritten(
    made_sandbox: Sandbox, tmp_path: Path
) -> None:
    assert make_sandbox(made_sandbox.root) == made_sandbox == open_sandbox(made_sandbox.root)
    (tmp_path / "mine").write_text("x")
    with pytest.raises(TargetError, match="not empty") as caught:
        make_sandbox(tmp_path)
    assert caught.value.remedy == "look into it, move it away, then run doit sandbox"
    with pytest.raises(TargetError, match="no sandbox here"):
        open_sandbox(tmp_path)


def fetch(url: str, **headers: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


def test_the_server_shows_what_was_pushed_whole_and_in_part(desk: Desk) -> None:
    entry = desk.entry("nopp")
    assert entry.url is not None
    with desk.sandbox.serving():
        status, data = fetch(entry.url)
        assert (status, hashlib.sha256(data).hexdigest()) == (200, entry.sha256)
        assert fetch(entry.url, Range="bytes=10-") == (206, data[10:])
        assert fetch(entry.url, Range="bytes=10-19") == (206, data[10:20])
        assert fetch(entry.url, Range=f"bytes={len(data)}-")[0] == 416
        assert fetch(desk.sandbox.url + "/nothing")[0] == 404
        assert fetch(desk.sandbox.url + "/../sandbox.json")[0] == 404
        with desk.sandbox.serving():
            assert fetch(entry.url)[0] == 200
        assert fetch(entry.url)[0] == 200
