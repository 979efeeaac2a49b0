from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.benches import Bench, local_bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("buildlib.device.link.FIRST_PAUSE", 0.001)
    bench = local_bench(tmp_path)
    yield bench
    link = bench.new_link()
    for job in link.call("job_list")["jobs"]:
        link.call("job_cancel", key=job["key"])
