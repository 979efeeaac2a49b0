"""A checkout and its state: where everything lies, opened once a run.

`.build/` is the project's memory: `receipts/` and `blobs/` are truth, `cache/` may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from buildlib.core.catalog import Catalog
from buildlib.core.sources.lockfile import NAME as LOCK_NAME
from buildlib.core.sources.lockfile import Lock
from buildlib.errors import CatalogError
from buildlib.store import files
from buildlib.store.blobs import BlobStore
from buildlib.store.lock_file import read_lock
from buildlib.store.receipts import ReceiptStore
from buildlib.store.stat_cache import StatCache

CATALOG_NAME = "models.yaml"


class Workspace:
    """One checkout. root: the directory that holds models.yaml."""

    def __init__(self, root: Path, environ: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.state = root / ".build"
        self.environ = os.environ if environ is None else environ

    @cached_property
    def hashes(self) -> StatCache:
        """sha256 of local files."""
        return StatCache(self.state / "cache" / "stat.msgpack")

    @cached_property
    def blobs(self) -> BlobStore:
        """The content store."""
        return BlobStore(self.state / "blobs", self.hashes)

    @cached_property
    def receipts(self) -> ReceiptStore:
        """Receipts and attempts."""
        return ReceiptStore(self.state)

    @cached_property
    def catalog(self) -> Catalog:
        """models.yaml, parsed; the parsed form is kept by the hash of all that it came from.

        Raises CatalogError with every problem.
        """
        return load_catalog(self.root / CATALOG_NAME, self.state / "cache" / "catalog.msgpack", self.environ)

    @cached_property
    def lock(self) -> Lock:
        """models.lock: what moving references were resolved to. A build reads it and never writes it."""
        return read_lock(self.root / LOCK_NAME)

    def hash_file(self, path: Path) -> str:
        """sha256 of a local file, remembered while the file system says that it is the same. Raises OSError."""
        sha256 = self.hashes.sha256(path)
        if sha256 is None:
            path.stat()  # says why
            raise OSError(f"{path} is no readable file")
        return sha256

    def relative(self, path: Path) -> str:
        """A path as receipts write it: from the root, with forward slashes."""
        return path.relative_to(self.root).as_posix()

    def artifact(self, model: str, name: str) -> Path:
        """Where a model's artifact lies on the workstation."""
        return self.root / "artifacts" / model / name

    def artifact_blob(self, model: str, name: str, sha256: str) -> Path:
        """Where the store has an artifact's bytes; if it lost them and they lie at their place, it has them again."""
        if not self.blobs.has(sha256):
            here = self.artifact(model, name)
            if self.hashes.sha256(here) == sha256:
                self.blobs.add(here)
        return self.blobs.path(sha256)

    def compile_log(self, model: str) -> Path:
        """The full log of the model's last compile, a by-product."""
        return self.root / "artifacts" / model / "compile.log"

    def observation(self, device: str) -> Path:
        """What was last seen of a device."""
        return self.state / "devices" / f"{device}.json"

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Saves what was learnt about files when the block ends, however it ends."""
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                self.hashes.save()


class _Cached(msgspec.Struct, frozen=True, array_like=True):
    """A parsed catalog with all that it came from. used: variables that the text asked for, None where unset."""

    stamp: str
    used: dict[str, str | None]
    catalog: msgspec.Raw


def load_catalog(path: Path, cache: Path, environ: Mapping[str, str]) -> Catalog:
    """Reads a catalog, from its cached form when text, variables and parser are the ones it was made from."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise CatalogError(
            (f"{path.name}: expected a file in {path.parent}, got none",),
            remedy=f"run doit where {path.name} is, or bring it back: git restore {path.name}",
        ) from None
    except OSError as error:
        raise CatalogError(
            (f"{path.name}: expected a readable file, got {error.strerror}",),
            remedy=f"look at its owner and mode: ls -ld {path.name}",
        ) from error
    stamp = hashlib.sha256(raw + repr((path.name, parser_sources())).encode()).hexdigest()
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError, RecursionError):
        kept = msgspec.msgpack.decode(files.read_sealed(cache), type=_Cached)
        if kept.stamp == stamp and all(environ.get(name) == value for name, value in kept.used.items()):
            return msgspec.msgpack.decode(kept.catalog, type=Catalog)
    from buildlib.core.declaration.catalog_parser import decode_catalog, parse_catalog
    from buildlib.core.declaration.interpolation import UsedEnviron

    asked = UsedEnviron(environ)
    catalog = parse_catalog(decode_catalog(raw, path=path.name), path=path.name, environ=asked)
    with contextlib.suppress(Exception):  # a cache that can't be written costs time only
        # For its owner alone: what came out of the environment is in it, and may be a token.
        files.write_sealed(cache, msgspec.msgpack.encode((stamp, asked.used, catalog)), mode=0o600)
    return catalog


def parser_sources() -> tuple[tuple[str, int, int], ...]:
    """Name, size and mtime_ns of the files that turn text into a catalog: `core` itself and its room `declaration`."""
    core = Path(__file__).parent.parent / "core"
    found = []
    for room in (core, core / "declaration"):
        with os.scandir(room) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    stat = entry.stat()
                    found.append((entry.name, stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(found))
