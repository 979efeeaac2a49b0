"""Which toolchain compiles here: contents, never a host, a path or a promise such as "commit + dirty"."""

from __future__ import annotations

import hashlib
import os
import re
import sys

from .hashes import HashCache, signature
from .places import Places, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SMALL_FILE = 1 << 20


def identify(places: Places, hashes: HashCache, spec: dict[str, Any]) -> dict[str, Any]:
    """{"identity": part of keys, "people": for reading only, "watch": changes when anything was touched, "problems"}.

    spec: pythonpath (device paths), script ({"path": device path} or {"sha256"}), c_compiler ({"path": real path,
    "identity": text or None} or None), os_release (True).
    """
    problems: list[dict[str, str]] = []
    people: dict[str, Any] = {}
    watch: list[Any] = []
    pythonpath = [places.real(path) for path in spec.get("pythonpath", ())]
    identity: dict[str, Any] = {
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "machine": os.uname().machine,
        "os": os_build(places),
        "tinygrad": _tinygrad(places, hashes, pythonpath, people, watch, problems),
        "numpy": _numpy([*pythonpath, *site_folders()]),
        "c_compiler": _c_compiler(hashes, spec.get("c_compiler"), watch),
    }
    identity["script"], identity["modules"] = _script(places, hashes, spec, pythonpath, people, watch, problems)
    digest = hashlib.sha256(repr(watch).encode("utf-8", "surrogateescape")).hexdigest()
    return {"identity": identity, "people": people, "watch": digest, "problems": problems}


def _tinygrad(
    places: Places,
    hashes: HashCache,
    pythonpath: list[str],
    people: dict[str, Any],
    watch: list[Any],
    problems: list[dict[str, str]],
) -> str | None:
    for folder in [*pythonpath, *site_folders()]:
        top = os.path.join(folder, "tinygrad")
        if folder and os.path.isfile(os.path.join(top, "__init__.py")):
            top = os.path.realpath(top)
            digest, seen = hashes.tree(top)
            watch.append(seen)
            people["tinygrad_path"] = top
            people.update(_commit(places, hashes, os.path.dirname(top), digest))
            return digest
    problems.append(
        {
            "what": "tinygrad is not found",
            "where": ":".join(pythonpath) or sys.executable,
            "remedy": "check paths.tinygrad and paths.venv of the device in models.yaml",
        }
    )
    return None


def _commit(places: Places, hashes: HashCache, checkout: str, digest: str) -> dict[str, Any]:
    """Commit and dirty state, for people; asked of git once for a content."""
    release = _release(checkout)
    head = _head(checkout) or _head(os.path.dirname(checkout))
    if head is None:
        return {"tinygrad_version": release, "tinygrad_commit": None, "tinygrad_dirty": None}
    key = f"commit:{checkout}:{head}:{digest}"
    known = hashes.recall(key)
    if known is None:
        known = _ask_git(checkout)
        hashes.remember(key, known)
    return {"tinygrad_version": release, **known}


def _release(checkout: str) -> str | None:
    """The version of an installed tinygrad; a checkout has none that can be trusted."""
    if os.path.isdir(checkout) and not os.path.exists(os.path.join(checkout, ".git")):
        for name in os.listdir(checkout):
            match = re.fullmatch(r"tinygrad-(.+)\.dist-info", name)
            if match:
                return match.group(1)
    return None


def _head(checkout: str) -> str | None:
    """The commit that .git/HEAD names, read without git; None where there is no checkout."""
    git = os.path.join(checkout, ".git")
    if os.path.isfile(git):
        pointer = read_text(git) or ""
        git = os.path.normpath(os.path.join(checkout, pointer.partition("gitdir:")[2].strip()))
    head = read_text(os.path.join(git, "HEAD"))
    if head is None or not head.startswith("ref:"):
        return head
    name = head[4:].strip()
    return read_text(os.path.join(git, name)) or f"{name} in {git}"


def _ask_git(checkout: str) -> dict[str, Any]:
    import subprocess

    def git(folder: str, *words: str) -> str | None:
        # The checkout belongs to another user than root: git asks to be told that this is meant.
        try:
            answer = subprocess.run(
                ["git", "-c", "safe.directory=*", "-C", folder, *words], capture_output=True, check=False, timeout=20
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return answer.stdout.decode().strip() if answer.returncode == 0 else None

    own = os.path.exists(os.path.join(checkout, ".git"))
    if own:
        commit = git(checkout, "rev-parse", "HEAD")
    else:
        parent = os.path.dirname(checkout)
        tree = git(parent, "rev-parse", f"HEAD:{os.path.basename(checkout)}")
        commit = tree if tree else None
    status = git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "tinygrad") if commit else None
    return {"tinygrad_commit": commit, "tinygrad_dirty": None if status is None else bool(status)}


def _numpy(folders: list[str]) -> str | None:
    for folder in folders:
        text = read_text(os.path.join(folder, "numpy", "version.py")) if folder else None
        if text:
            match = re.search(r"""^(?:short_|full_)?version\s*=\s*["']([^"']+)""", text, re.MULTILINE)
            return match.group(1) if match else hashlib.sha256(text.encode()).hexdigest()
    return None


def _c_compiler(hashes: HashCache, spec: dict[str, Any] | None, watch: list[Any]) -> str | None:
    """What the C compiler is: the given identity, or its own version line and the digest of its file.

    The path is never part of it; the file's signature is watched.
    """
    path = (spec or {}).get("path") or _which("clang")
    if path is None or not os.path.exists(path):
        return (spec or {}).get("identity")
    real = os.path.realpath(path)
    watch.append(signature(os.stat(real)))
    given = (spec or {}).get("identity")
    if given:
        return str(given)
    digest, _ = hashes.file(real)
    key = f"cc:{digest}"
    known = hashes.recall(key)
    if known is None:
        import subprocess

        answer = subprocess.run([path, "--version"], capture_output=True, check=False, timeout=60)
        lines = answer.stdout.decode("utf-8", "replace").splitlines()
        known = f"{lines[0] if lines else 'unknown'} {digest[:16]}"
        hashes.remember(key, known)
    return str(known)


def _which(name: str) -> str | None:
    for folder in os.environ.get("PATH", "/usr/bin:/bin").split(":"):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def site_folders() -> list[str]:
    """Where this interpreter's installed packages lie. The agent runs without `site`, which costs its start twice."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    prefixes = dict.fromkeys((os.path.dirname(os.path.dirname(sys.executable)), sys.prefix, sys.base_prefix))
    inside_venv = os.path.exists(os.path.join(next(iter(prefixes)), "pyvenv.cfg"))
    found = []
    for prefix in list(prefixes)[:1] if inside_venv else prefixes:
        for name in (f"lib/{version}/site-packages", f"local/lib/{version}/dist-packages", "lib/python3/dist-packages"):
            folder = os.path.join(prefix, name)
            if os.path.isdir(folder):
                found.append(folder)
                found += _pth_folders(folder)
    return found


def _pth_folders(folder: str) -> list[str]:
    """Folders that .pth files add, as an editable install does; lines that would be executed are not."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".pth"):
            for line in (read_text(os.path.join(folder, name)) or "").splitlines():
                path = os.path.join(folder, line.strip())
                if line.strip() and not line.startswith(("#", "import ", "import\t")) and os.path.isdir(path):
                    found.append(path)
    return found


def os_build(places: Places) -> str | None:
    """AGNOS: /VERSION. Else /etc/os-release, else a Mac's build."""
    version = read_text(places.system("/VERSION"))
    if version:
        return f"AGNOS {version}"
    release = read_text(places.system("/etc/os-release"))
    if release:
        values = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
        words = [values.get(name, "").strip("\"'") for name in ("ID", "VERSION_ID", "BUILD_ID")]
        return " ".join(word for word in words if word)
    plist = read_text("/System/Library/CoreServices/SystemVersion.plist") or ""
    match = re.search(r"<key>ProductBuildVersion</key>\s*<string>([^<]+)", plist)
    return f"macOS {match.group(1)}" if match else None


def _script(
    places: Places,
    hashes: HashCache,
    spec: dict[str, Any],
    pythonpath: list[str],
    people: dict[str, Any],
    watch: list[Any],
    problems: list[dict[str, str]],
) -> tuple[str | None, str]:
    """(digest of the compile script, digest over the modules that it loads from the PYTHONPATH)."""
    script = spec.get("script") or {}
    empty = hashlib.sha256(b"").hexdigest()
    if "path" not in script:
        return script.get("sha256"), empty
    path = places.real(script["path"])
    if not os.path.isfile(path):
        if "sha256" in script:
            return script["sha256"], empty
        problems.append(
            {
                "what": "the compile script is not on the device",
                "where": script["path"],
                "remedy": "set compile_script of the device in models.yaml to its path, or to builtin",
            }
        )
        return None, empty
    from .imports import closure

    digest, seen = hashes.file(path)
    watch.append(seen)
    roots = [os.path.dirname(path), *(folder for folder in pythonpath if os.path.isdir(folder))]
    modules = closure(hashes, path, roots)
    watch.append([entry[2] for entry in modules])
    people["modules"] = [entry[0] for entry in modules]
    text = "".join(f"{sha256}  {relative}\n" for relative, sha256, _ in modules)
    return digest, hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
