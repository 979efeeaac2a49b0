"""A model repository on Hugging Face. The only file that imports huggingface_hub (the extra `huggingface`)."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from buildlib.errors import InputChanged, TargetError

SILENCE = 60.0
"""Seconds without a byte after which the hub counts as gone; its own client waits for ever."""


class Moved(Exception):
    """The branch has got another commit since the one that ours sits on."""


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """A file in a commit. sha256: None for small files outside LFS. commit: the one that last changed it."""

    path: str
    size: int
    sha256: str | None
    commit: str | None


@dataclass(frozen=True, kw_only=True)
class HubCommit:
    """A commit. message: what follows its first line."""

    id: str
    title: str
    message: str
    authors: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Operations:
    """What a commit does. add: path -> a file here and its sha256; write: path -> small content; copy: path -> the
    commit from which the file at that path comes back."""

    add: Mapping[str, tuple[Path, str]]
    write: Mapping[str, bytes]
    copy: Mapping[str, str]
    delete: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All that it touches."""
        return tuple(sorted({*self.add, *self.write, *self.copy, *self.delete}))


class Hub:
    """One repository, one branch. endpoint: None for the public hub, or HF_ENDPOINT."""

    def __init__(self, repository: str, branch: str, endpoint: str | None = None) -> None:
        self.repository = repository
        self.branch = branch
        self._endpoint = endpoint
        self._opened: Any = None

    def head(self) -> str:
        """The branch's commit. Raises TargetError where there is no such repository or branch."""
        with self._asking("read"):
            refs = self._api.list_repo_refs(self.repository)
        for branch in refs.branches:
            if branch.name == self.branch:
                return str(branch.target_commit)
        raise TargetError(
            f'the repository has no branch "{self.branch}"',
            where=self.repository,
            got=", ".join(branch.name for branch in refs.branches) or "no branch at all",
            remedy="correct `branch` of the target in models.yaml, or make the branch",
        )

    def files(self, commit: str, paths: tuple[str, ...], *, changes: bool = False) -> dict[str, HubFile]:
        """Those of the paths that are there. changes: with the commit that last changed each."""
        if not paths:
            return {}
        with self._asking("read"):
            told = self._api.get_paths_info(self.repository, list(paths), revision=commit, expand=changes)
        return {
            one.path: HubFile(
                path=one.path,
                size=one.lfs.size if one.lfs else one.size,
                sha256=one.lfs.sha256 if one.lfs else None,
                commit=one.last_commit.oid if one.last_commit else None,
            )
            for one in told
            if hasattr(one, "blob_id")
        }

    def read(self, commit: str, path: str) -> bytes | None:
        """A small file's bytes; None where it is not there."""
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        with self._asking("read"):
            url = f"{self._api.endpoint}/{self.repository}/resolve/{commit}/{quote(path)}"
            response = get_session().get(url, headers=build_hf_headers())
            if response.status_code == 404:
                return None
            hf_raise_for_status(response)
            return bytes(response.content)

    def sha256(self, commit: str, file: HubFile) -> str:
        """Of a file's bytes; small ones are downloaded for it."""
        return file.sha256 or hashlib.sha256(self.read(commit, file.path) or b"").hexdigest()

    def commits(self) -> tuple[HubCommit, ...]:
        """The branch's commits, newest first."""
        with self._asking("read"):
            told = self._api.list_repo_commits(self.repository, revision=self.branch)
        return tuple(
            HubCommit(id=one.commit_id, title=one.title, message=one.message, authors=tuple(one.authors))
            for one in told
        )

    def url(self, path: str) -> str:
        """From where anybody downloads a file of the branch."""
        endpoint = urlsplit(self._api.endpoint)
        public = urlunsplit(endpoint._replace(netloc=endpoint.netloc.rpartition("@")[2]))
        return f"{public}/{self.repository}/resolve/{quote(self.branch, safe='')}/{quote(path)}"

    def commit(self, parent: str, message: str, operations: Operations) -> str:
        """One commit on top of parent; large files are there before it. Raises Moved, InputChanged, TargetError."""
        from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete

        title, _, description = message.partition("\n")
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._asking("write"))
            # From an open file: the way by HTTP alone, which a test can stand in for; a path would go by Xet.
            added = [
                (CommitOperationAdd(path, stack.enter_context(source.open("rb"))), sha256)
                for path, (source, sha256) in operations.add.items()
            ]
            for operation, sha256 in added:
                if operation.upload_info.sha256.hex() != sha256:
                    raise InputChanged(
                        "the artifact changed while it was copied",
                        where=operation.path_in_repo,
                        expected=sha256,
                        got=operation.upload_info.sha256.hex(),
                    )
            asked: list[Any] = [operation for operation, _ in added]
            asked += [CommitOperationCopy(path, path, src_revision=old) for path, old in operations.copy.items()]
            asked += [CommitOperationDelete(path) for path in operations.delete]
            asked += [CommitOperationAdd(path, data) for path, data in operations.write.items()]
            done = self._api.create_commit(
                self.repository,
                asked,
                commit_message=title,
                commit_description=description.strip(),
                revision=self.branch,
                parent_commit=parent,
            )
        return str(done.oid)

    @property
    def _api(self) -> Any:
        if self._opened is None:
            try:
                from huggingface_hub import HfApi
                from huggingface_hub.utils import disable_progress_bars, get_session, logging
            except ImportError:
                raise TargetError(
                    "publishing to Hugging Face needs huggingface_hub, which is not installed",
                    where=self.repository,
                    remedy="pip install 'supercombo-build[huggingface]'",
                ) from None
            disable_progress_bars()
            logging.set_verbosity_error()
            get_session().timeout = SILENCE
            self._opened = HfApi(endpoint=self._endpoint, library_name="supercombo-build")
        return self._opened

    @contextlib.contextmanager
    def _asking(self, purpose: str) -> Iterator[None]:
        """The library's errors in our words."""
        self._api  # noqa: B018 - says what is missing before the imports below do
        from huggingface_hub.errors import HfHubHTTPError, HTTPError

        try:
            yield
        except HfHubHTTPError as error:
            status = error.response.status_code if error.response is not None else 0
            if status in (409, 412) and purpose == "write":
                raise Moved from None
            raise self._refused(status, purpose, str(getattr(error, "server_message", None) or error)) from error
        except (HTTPError, OSError, RuntimeError, ValueError) as error:
            cut = next((one for one in (error, error.__cause__) if isinstance(one, (HTTPError, OSError))), None)
            told = cut or error
            raise TargetError(
                "the hub cannot be reached" if cut is not None else "the hub's answer makes no sense",
                where=f"{self._api.endpoint}/{self.repository}",
                got=f"{type(told).__name__}: {told}".splitlines()[0][:300],
                remedy="try again when it can be reached; a commit is made whole or not at all",
            ) from error

    def _refused(self, status: int, purpose: str, words: str) -> TargetError:
        if status in (401, 403, 404):
            what = "no right to write there" if purpose == "write" else "no such repository, or no right to see it"
            remedy = "hf auth login with a token that may write there, or correct `repository` of the target"
        else:
            what, remedy = f"the hub refused (HTTP {status})", "see what it says; nothing was changed"
        return TargetError(
            what, where=f"{self._api.endpoint}/{self.repository}", got=words.splitlines()[0][:300], remedy=remedy
        )
