"""A device to try things on by hand: `python -m tests.devices DIRECTORY` says what models.yaml needs of it."""

from __future__ import annotations

import argparse
import contextlib
import signal
from pathlib import Path

import yaml

from buildlib.toolchain.c_compiler import find_c_compiler
from tests.devices.comma import CommaDevice, comma_device
from tests.devices.iqpilot import add_iqpilot


def section(device: CommaDevice) -> dict[str, object]:
    """What models.yaml holds of it. profile: there is no accelerator here to compile for."""
    declared = device.catalog_device
    return {
        "host": declared.host,
        "port": declared.port,
        "user": declared.user,
        "identity": declared.identity,
        "known_hosts": declared.known_hosts,
        "profile": "cpu",
        "install": True,
        "paths": {"root": declared.paths.root},
    }


def main() -> None:
    """Runs one until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.devices", description="a comma device on loopback")
    parser.add_argument("directory", type=Path, help="for its root, its server and its keys")
    parser.add_argument("--iqpilot", action="store_true", help="with a harness in IQPilot's place")
    options = parser.parse_args()
    directory = options.directory.resolve()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs begin with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    compiler = find_c_compiler(directory).path
    with contextlib.suppress(KeyboardInterrupt), comma_device(directory) as device:
        device.path("usr/local/venv/bin/clang").symlink_to(compiler)
        if options.iqpilot:
            add_iqpilot(device.root)
        print(yaml.safe_dump({"devices": {"desk": section(device)}}, sort_keys=False), flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
