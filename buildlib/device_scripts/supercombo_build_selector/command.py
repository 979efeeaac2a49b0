"""The command line of selector_download.py."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .download import Download
from .parameters import open_store


def parse(arguments: list[str], about: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument("--params", type=Path, required=True, help="directory of the parameters")
    parser.add_argument("--models", type=Path, required=True, help="directory of the model files")
    parser.add_argument("--artifact", nargs=2, action="append", required=True, metavar=("NAME", "SHA256"))
    parser.add_argument("--bundle", help="short name of the bundle")
    parser.add_argument("--visible", type=float, default=600, help="seconds until the list must have it")
    parser.add_argument("--download", type=float, default=600, help="seconds for the download")
    parser.add_argument("--grace", type=float, default=3, help="seconds from a manager's last word to what it leaves")
    parser.add_argument("--report", type=Path, required=True)
    return parser.parse_args(arguments)


def main(arguments: list[str], about: str | None) -> int:
    """The exit status. about: what the help says."""
    asked = parse(arguments, about)
    store, through = open_store(asked.params)
    print(f"parameters through {through}", flush=True)
    download = Download(store, asked.models, dict(asked.artifact), asked.bundle, asked.grace)
    download.report["through"] = through
    outcome = download.run(asked.visible, asked.download)
    download.report["outcome"] = outcome
    print(outcome, flush=True)
    temporary = asked.report.with_suffix(".tmp")
    temporary.write_text(json.dumps(download.report))
    temporary.replace(asked.report)
    return 0 if outcome == "downloaded" else 1
