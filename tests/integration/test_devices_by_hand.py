"""`python -m tests.devices DIRECTORY`, as CONTRIBUTING has it: a device to try things on by hand."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import yaml

from buildlib.core.declaration.catalog_parser import parse_catalog
from tests.devices.server import SSHD_MARKS
from tests.support.projects import CHECKOUT

pytestmark = SSHD_MARKS


def test_a_device_says_what_models_yaml_needs_and_runs_until_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.devices", str(tmp_path / "a device"), "--iqpilot"]
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command]  # as behind `&`
    device = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert device.stdout is not None
    section = "".join(iter(device.stdout.readline, "\n"))
    model = {"source": "one.onnx", "artifact": "one.pkl", "device": "desk"}
    text = yaml.safe_dump({**yaml.safe_load(section), "models": {"one": model}})
    catalog = parse_catalog(text, path="models.yaml", environ={})
    assert (Path(catalog.devices["desk"].paths.root) / "data/openpilot").is_dir()
    with socket.create_connection(("127.0.0.1", catalog.devices["desk"].port or 0)) as answer:
        assert answer.recv(4) == b"SSH-"
    device.send_signal(signal.SIGINT)
    assert device.communicate(timeout=60)[1] == ""
    assert device.returncode == 0
