from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from buildlib.core.catalog import Device, DevicePaths
from buildlib.transports.ssh import SshTransport
from tests.devices.comma import CommaDevice, comma_device
from tests.devices.server import SSHD_MARKS
from tests.support.benches import Bench, local_bench, new_root


@pytest.fixture(scope="session")
def comma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommaDevice]:
    """One server for all tests of a worker; each test has a root of its own behind it."""
    with comma_device(tmp_path_factory.mktemp("comma")) as device:
        yield device


@pytest.fixture(params=["local", pytest.param("ssh", marks=SSHD_MARKS)])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A device on either transport."""
    monkeypatch.setattr("buildlib.device.link.FIRST_PAUSE", 0.001)
    if request.param == "local":
        bench = local_bench(tmp_path)
    else:
        bench = _ssh_bench(tmp_path, request.getfixturevalue("comma"))
    yield bench
    bench.link.transport.close()
    link = bench.new_link()
    for job in link.call("job_list")["jobs"]:
        link.call("job_cancel", key=job["key"])
    link.transport.close()


def _ssh_bench(folder: Path, comma: CommaDevice) -> Bench:
    root = new_root(folder)
    paths = DevicePaths(root=str(root), python=comma.catalog_device.paths.root + "/usr/local/venv/bin/python")
    device: Device = msgspec.structs.replace(comma.catalog_device, paths=paths)
    bench = Bench(root=root, device=device, connect=lambda: SshTransport(device, home=comma.home))
    bench.link.call("layout")
    return bench
