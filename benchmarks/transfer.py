"""How fast an artifact travels: 119 MB up and down, against scp in the same run and against an emulated link's limit.

    python -m benchmarks.transfer [--runs N] [--json FILE]

Loopback: the ratio to `scp -c aes128-gcm@openssh.com`; goal 0.95. Link of 1 Gbit/s with 20 ms: the share of the limit;
goal 0.6. Memory: the peak of this process above idle; goal 64 MB. Speeds are the best of N runs, taken in turns.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from buildlib.core.catalog import Device
from buildlib.device.link import DeviceLink
from buildlib.transports.ssh import SshTransport
from tests.devices import CommaDevice, comma_device
from tests.devices.network import link_process

SIZE = 119_000_000
MB = 1_000_000
GIGABIT = 125 * MB
RANGES = 4
IDLE = 60.0
REMOTE = "/data/media/0/models/driving_supercombo_sample.pkl"
SOURCE = "/data/media/0/driving_supercombo_sample_source.onnx"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--delay", type=float, default=0.010, help="seconds one way; half of the round trip")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, comma_device(Path(directory), sudo="passes") as device:
        bench = Bench(device, Path(directory))
        idle = peak()
        results = bench.loopback(arguments.runs) | bench.link(arguments.runs, arguments.delay)
        results["memory above idle, MB"] = round((peak() - idle) / MB, 1)
    for name, value in results.items():
        print(f"{name:44} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


class Bench:
    """A device with an artifact on it, and every way to move it."""

    def __init__(self, device: CommaDevice, directory: Path) -> None:
        self.device = device
        self.directory = directory
        self.local = directory / "source.onnx"
        self.data_hash = write_random(self.local)
        self.remote = device.path(REMOTE)
        shutil.copyfile(self.local, self.remote)
        self.arrived = directory / "arrived"

    def loopback(self, runs: int) -> dict[str, object]:
        """scp, the bare transport and the device link, in turns."""
        transport = SshTransport(self.device.catalog_device, home=self.device.home)
        ways: dict[str, Callable[[], None]] = {
            "scp down": lambda: self.scp(self.url(self.remote), str(self.arrived)),
            "scp up": lambda: self.scp(str(self.local), self.url(self.device.path("/data/up"))),
            "transport down": lambda: self.down(transport),
            "transport up": lambda: self.up(transport),
            "push": lambda: self.push(link),
            "fetch": lambda: self.fetch(link),
        }
        transport.run(("true",), idle_timeout=IDLE)
        link = self.device_link(transport, self.device.catalog_device)
        speeds = best(ways, runs)
        link.close()
        return {
            "loopback, streams": link.streams(),
            **{f"loopback, {name}, MB/s": round(speed) for name, speed in speeds.items()},
            "loopback, transport down / scp": round(speeds["transport down"] / speeds["scp down"], 2),
            "loopback, transport up / scp": round(speeds["transport up"] / speeds["scp up"], 2),
            "loopback, fetch / scp": round(speeds["fetch"] / speeds["scp down"], 2),
            "loopback, push / scp": round(speeds["push"] / speeds["scp up"], 2),
        }

    def link(self, runs: int, delay: float) -> dict[str, object]:
        """The same over an emulated link."""
        with link_process(self.device.port, delay=delay, rate=GIGABIT) as port:
            far = self.device.through(port)
            transport = SshTransport(far, home=self.device.home)
            link = self.device_link(transport, far)
            ways: dict[str, Callable[[], None]] = {
                "transport down": lambda: self.down(transport),
                "transport up": lambda: self.up(transport),
                "transport down, ranges": lambda: self.down_in_ranges(transport),
                "transport up, ranges": lambda: self.up_in_ranges(transport),
                "push": lambda: self.push(link),
                "fetch": lambda: self.fetch(link),
            }
            transport.run(("true",), idle_timeout=IDLE)
            speeds = best(ways, runs)
            streams = link.streams()
            link.close()
        name = f"1 Gbit/s, {delay * 2000:g} ms"
        return {
            f"{name}, streams": streams,
            **{f"{name}, {way}, MB/s": round(speed) for way, speed in speeds.items()},
            **{f"{name}, {way} / limit": round(speed * MB / GIGABIT, 2) for way, speed in speeds.items()},
        }

    def url(self, remote: Path) -> str:
        return f"{self.device.server.user}@127.0.0.1:{remote}"

    def scp(self, source: str, destination: str) -> None:
        device = self.device.catalog_device
        options = ("-q", "-c", "aes128-gcm@openssh.com", "-i", device.identity, "-P", str(device.port), "-F", "none")
        hosts = ("-o", f"UserKnownHostsFile={device.known_hosts}", "-o", "BatchMode=yes")
        subprocess.run(["scp", *options, *hosts, source, destination], check=True)

    def down(self, transport: SshTransport) -> None:
        with self.arrived.open("wb") as file:
            transport.run(("cat", str(self.remote)), stdout=file.write, idle_timeout=IDLE)

    def up(self, transport: SshTransport) -> None:
        target = self.device.path("/data/up")
        with self.local.open("rb") as file:
            transport.run(("sh", "-c", 'cat > "$1"', "sh", str(target)), stdin=file, idle_timeout=IDLE)

    def down_in_ranges(self, transport: SshTransport) -> None:
        with self.arrived.open("wb") as file, ThreadPoolExecutor(RANGES) as pool:

            def take(start: int) -> None:
                at = start

                def write(block: bytes) -> None:
                    nonlocal at
                    at += os.pwrite(file.fileno(), block, at)

                script = 'tail -c +"$2" "$1" | head -c "$3"'
                argv = ("sh", "-c", script, "sh", str(self.remote), str(start + 1), str(SIZE // RANGES))
                transport.run(argv, stdout=write, idle_timeout=IDLE)

            list(pool.map(take, range(0, SIZE, SIZE // RANGES)))

    def up_in_ranges(self, transport: SshTransport) -> None:
        with ThreadPoolExecutor(RANGES) as pool:

            def give(start: int) -> None:
                script = 'head -c "$2" > "$1"'
                argv = ("sh", "-c", script, "sh", f"{self.device.path('/data/up')}.{start}", str(SIZE // RANGES))
                with self.local.open("rb") as file:
                    file.seek(start)
                    transport.run(argv, stdin=Some(file, SIZE // RANGES), idle_timeout=IDLE)

            list(pool.map(give, range(0, SIZE, SIZE // RANGES)))

    def device_link(self, transport: SshTransport, device: Device) -> DeviceLink:
        """As a build opens it: with more connections where the way is long."""
        return DeviceLink(transport, device, connect=lambda: SshTransport(device, home=self.device.home))

    def push(self, link: DeviceLink) -> None:
        self.device.path(SOURCE).unlink(missing_ok=True)
        link.push(self.local, SOURCE, sha256=self.data_hash)

    def fetch(self, link: DeviceLink) -> None:
        self.arrived.unlink(missing_ok=True)
        link.fetch(REMOTE, self.arrived, sha256=self.data_hash, size=SIZE)


class Some(io.RawIOBase):
    """At most `left` bytes of a file."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self.file, self.left = file, left

    def read(self, size: int = -1) -> bytes:
        block = self.file.read(min(size, self.left))
        self.left -= len(block)
        return block


def best(ways: dict[str, Callable[[], None]], runs: int) -> dict[str, float]:
    """MB/s of each way, the best of so many turns."""
    speeds = dict.fromkeys(ways, 0.0)
    for _ in range(runs):
        for name, act in ways.items():
            # What an earlier way left unwritten must not be paid by the next.
            os.sync()
            start = time.perf_counter()
            act()
            speeds[name] = max(speeds[name], SIZE / MB / (time.perf_counter() - start))
    return speeds


def write_random(path: Path) -> str:
    """In pieces: this process's own memory is measured."""
    source, hasher = random.Random(119), hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(SIZE // MB):
            block = source.randbytes(MB)
            file.write(block)
            hasher.update(block)
    return hasher.hexdigest()


def peak() -> int:
    """The most memory that this process ever held, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    main()
