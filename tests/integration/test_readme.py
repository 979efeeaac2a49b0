"""The README's two lines, pasted on a fresh machine: an empty virtual environment, a clone, nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def lines(word: str) -> list[str]:
    """The README's lines to paste that hold a word."""
    return [line for line in README.splitlines() if line.startswith("python3 -m venv") and word in line]


def test_there_is_one_line_to_build_and_one_to_test() -> None:
    assert len(lines("doit")) == 1
    assert len(lines("pytest")) == 1


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.relative_to(ROOT)} links to {target}"


def test_the_index_names_every_document() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    for document in sorted((ROOT / "docs").glob("*/*.md")):
        name = document.relative_to(ROOT / "docs").as_posix()
        assert name in index or name.startswith("decisions/"), name
    assert "docs/README.md" in README


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.timeout(1800)
def test_the_first_line_makes_three_artifacts_with_hashes_that_both_tools_accept(tmp_path: Path) -> None:
    clone = tmp_path / "a fresh clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    (line,) = lines("doit")
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    subprocess.run(["bash", "-euc", line], cwd=clone, env=environ, check=True)
    hashes = sorted((clone / "artifacts").rglob("*.sha256"))
    assert [path.name for path in hashes] == [
        "driving_supercombo_drl3.pkl.sha256",
        "driving_supercombo_nopp.pkl.sha256",
        "driving_supercombo_tobyrl.pkl.sha256",
    ]
    for path in hashes:
        subprocess.run(["sha256sum", "-c", path.name], cwd=path.parent, check=True)
        if shutil.which("shasum"):
            subprocess.run(["shasum", "-a", "256", "-c", path.name], cwd=path.parent, check=True)
    again = subprocess.run(
        [str(clone / ".venv/bin/doit")], cwd=clone, env=environ, check=True, capture_output=True, text=True
    )
    assert again.stdout == "3 models up to date.\n"
