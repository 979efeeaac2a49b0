"""Which hosts lie on the way to a device, and how to log in to each: models.yaml over `~/.ssh/config`."""

from __future__ import annotations

import contextlib
import getpass
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from buildlib.core.catalog import Device
from buildlib.errors import DeviceError
from buildlib.plain_text import one_line
from buildlib.transports.ssh_known_hosts import DEFAULT_PORT, entry_name

if TYPE_CHECKING:
    import paramiko

DEFAULT_IDENTITIES = ("id_ed25519", "id_ecdsa", "id_rsa")
MOST_INCLUDES = 16
MOST_HOPS = 8
MOST_PORT = 65535
SETTING = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*$")
CRITERIA = ("host", "originalhost", "user", "localuser")
BARE_CRITERIA = ("all", "canonical", "final")
"""Of Match. What paramiko does not know it takes for fulfilled, and the program of an `exec` it runs."""
UNDECIDED = "supercombomatch"
"""A setting of our own: in a Match block that depends on a criterion which is not judged here."""
PATH_SETTINGS = ("identityfile", "certificatefile")


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One host on the way.

    label: how messages name it. key_name: its name in known_hosts. known_hosts: files, the first found line counts.
    identities: private key files, in order; chosen: models.yaml names them, so each must be usable.
    """

    label: str
    host: str
    port: int
    user: str
    key_name: str
    identities: tuple[Path, ...]
    chosen: bool
    known_hosts: tuple[Path, ...]

    @property
    def address(self) -> str:
        """`iq@desk.lan`, with the port where it is not 22."""
        return f"{self.user}@{self.host}" + ("" if self.port == DEFAULT_PORT else f":{self.port}")


def route(device: Device, *, home: Path, project: Path) -> tuple[Hop, ...]:
    """The hops to a device, the device last.

    home: whose `.ssh` counts. project: what a relative `identity` or `known_hosts` of models.yaml starts from.
    Raises DeviceError for a configuration that cannot be followed: ProxyCommand, a circle of jumps, a broken file.
    """
    return _Router(device, home, project).hops()


def pins_file(device: Device, *, home: Path, project: Path) -> Path:
    """The project's own known_hosts file, which `doit doctor --trust` writes."""
    return _path(device.known_hosts, home, project) if device.known_hosts else project / "known_hosts"


class _Router:
    def __init__(self, device: Device, home: Path, project: Path) -> None:
        import paramiko

        self.device = device
        self.home = home
        self.project = project
        self.file = home / ".ssh" / "config"
        self.unreadable = (paramiko.ConfigParseError, paramiko.CouldNotCanonicalize, ValueError, LookupError)
        with self._read():
            self.text = "\n".join(flatten(self.file, home))

    @contextlib.contextmanager
    def _read(self) -> Iterator[None]:
        """What is wrong in the file comes as whatever paramiko, shlex and glob happen to raise."""
        try:
            yield
        except self.unreadable as error:
            said = one_line(str(error))
            raise DeviceError(
                said if "Parse" in type(error).__name__ else f"cannot be followed: {type(error).__name__}: {said}",
                where=str(self.file),
                remedy="`ssh -G HOST` shows what OpenSSH reads",
            ) from None

    def hops(self) -> tuple[Hop, ...]:
        device = self.device
        options = self._lookup(device.host or device.name, device.user, device.port)
        identities = (_path(device.identity, self.home, self.project),) if device.identity else ()
        hop = self._hop(device.name, options, device.user, device.port, identities)
        return (*self._jumps(device.proxy_jump or self._jump_of(options, device.name), MOST_HOPS), hop)

    def _jumps(self, jumps: str | None, left: int) -> tuple[Hop, ...]:
        if jumps is None or jumps.lower() == "none":
            return ()
        hops: tuple[Hop, ...] = ()
        for index, jump in enumerate(part.strip() for part in jumps.split(",")):
            left -= 1
            if left < 0:
                raise DeviceError(
                    "the jumps go in a circle",
                    where=self.device.name,
                    got=jumps,
                    remedy=f"look for ProxyJump in {self.file}",
                )
            user, host, port = _split(jump, self.device.name)
            options = self._lookup(host, user, port)
            if index == 0:
                # As in OpenSSH: only the first of a list may have a way of its own.
                hops += self._jumps(self._jump_of(options, host), left)
            # A jump without a key of its own in ~/.ssh/config is tried with the device's.
            own = "identityfile" in options or not self.device.identity
            spare = () if own else (_path(self.device.identity or "", self.home, self.project),)
            hops = (*hops, self._hop(host, options, user, port, spare))
        return hops

    def _lookup(self, host: str, user: str | None, port: int | None) -> paramiko.SSHConfigDict:
        """The settings for a host. user, port: what is said elsewhere wins, and `Match user` and tokens see it."""
        import paramiko

        said = [f"User {user}"] if user and user.isprintable() and not user.startswith('"') else []
        said += [f"Port {port}"] if port else []
        with self._read():
            found = paramiko.SSHConfig.from_text("\n".join(["Host *", *said, self.text])).lookup(host)
        if UNDECIDED in found:
            raise DeviceError(
                "a Match is not followed: what it asks for is not judged here, and no program is run for it",
                where=f"{self.file}: {host}",
                got=one_line(found[UNDECIDED]),
                remedy="write it as `Host` or `Match host`, or say host, port, user and identity in models.yaml",
            )
        return found

    def _jump_of(self, options: paramiko.SSHConfigDict, label: str) -> str | None:
        if options.get("proxycommand"):
            raise DeviceError(
                "ProxyCommand is not followed: it would run a program unseen",
                where=f"{self.file}: {label}",
                got=options["proxycommand"],
                remedy="use ProxyJump there, or `proxy_jump` in models.yaml",
            )
        return options.get("proxyjump")

    def _hop(
        self,
        label: str,
        options: paramiko.SSHConfigDict,
        user: str | None,
        port: int | None,
        identities: tuple[Path, ...],
    ) -> Hop:
        host = options["hostname"]
        port = self._port(str(port) if port else options.get("port", str(DEFAULT_PORT)))
        ssh = self.home / ".ssh"
        configured = tuple(Path(name) for name in options.get("identityfile", ()) if name.lower() != "none")
        usual = tuple(ssh / name for name in DEFAULT_IDENTITIES if (ssh / name).is_file())
        alias = options.get("hostkeyalias")
        with self._read():
            files = shlex.split(options.get("userknownhostsfile", "")) or [str(ssh / "known_hosts")]
            files += shlex.split(options.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts"))
        return Hop(
            label=label,
            host=host,
            port=port,
            user=user or options.get("user") or getpass.getuser(),
            key_name=alias.lower() if alias else entry_name(host, port),
            identities=identities or configured or usual,
            chosen=bool(identities),
            known_hosts=(
                pins_file(self.device, home=self.home, project=self.project),
                *(_path(file, self.home, ssh) for file in files if file.lower() != "none"),
            ),
        )

    def _port(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= MOST_PORT):
            raise DeviceError("no such port", where=str(self.file), expected=f"1 to {MOST_PORT}", got=one_line(text))
        return int(text)


def flatten(file: Path, home: Path, *, left: int = MOST_INCLUDES) -> list[str]:
    """The lines of an ssh_config file with every Include replaced by what it names, `~` and `%d` by home.

    paramiko reads no Include, and takes the home of the process. A missing file has no lines, as in OpenSSH.
    """
    if left < 0:
        raise DeviceError("Include goes in a circle", where=str(file))
    try:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        return []
    except OSError as error:
        raise DeviceError(f"unreadable: {error.strerror}", where=str(file)) from None
    lines: list[str] = []
    block = ["Host *"]
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        setting = SETTING.match(line)
        name, value = (setting[1].lower(), setting[2]) if setting else ("", "")
        if name in ("host", "match"):
            block, inside = _judged(value) if name == "match" else [line], True
            lines += block
            continue
        if name != "include":
            lines.append(_at_home(line, value, home) if name in PATH_SETTINGS else line)
            continue
        included = [line for pattern in shlex.split(value) for line in _included(pattern, home, left)]
        if inside and any(re.match(r"\s*(host|match)\b", line, re.IGNORECASE) for line in included):
            raise DeviceError(
                "an Include inside a Host block brings Host blocks of its own, which is not followed",
                where=f"{file}:{number}",
                remedy="move the Include to the top of the file",
            )
        lines += [*included, *block]
    return lines


def _judged(match: str) -> list[str]:
    """A Match line with the criteria that are judged, and the others as a setting that says they are not.

    Settings before the Match that hold anyway win as ever; where the judged criteria fail, the block does not count.
    """
    kept: list[str] = []
    others: list[str] = []
    # Words of OpenSSH may be `host=a,b` too, and a comment ends the line.
    words = iter(shlex.split(match, comments=True))
    for word in words:
        name, equals, value = word.partition("=")
        bare = name.removeprefix("!").lower()
        if bare in BARE_CRITERIA:
            kept.append(name)
            continue
        value = value if equals else next(words, "")
        if bare in CRITERIA:
            kept += [name, shlex.quote(value)]
        else:
            others += [name, value]
    if not others:
        return [f"Match {' '.join(kept)}"]
    return [f"Match {' '.join(kept) or 'all'}", f"{UNDECIDED} {' '.join(others)}"]


def _included(pattern: str, home: Path, left: int) -> list[str]:
    path = _path(pattern, home, home / ".ssh")
    if path == Path(path.anchor):
        return []
    files = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    return [line for file in files for line in flatten(file, home, left=left - 1)]


def _at_home(line: str, value: str, home: Path) -> str:
    at_home = re.sub(r'(^|[\s"])~/', lambda match: f"{match[1]}{home}/", value).replace("%d", str(home))
    return line.replace(value, at_home)


def _path(text: str, home: Path, start: Path) -> Path:
    return home / text[2:] if text.startswith("~/") else start / text


def _split(jump: str, where: str) -> tuple[str | None, str, int | None]:
    """`[ssh://][user@]host[:port]`, an IPv6 host in brackets."""
    match = re.fullmatch(r"(?:ssh://)?(?:(.+)@)?(\[[^\]]+\]|[^:@]+)(?::(\d+))?/?", jump)
    if match is None:
        raise DeviceError("no such jump", where=where, expected="[user@]host[:port]", got=jump)
    return match[1], match[2].strip("[]"), int(match[3]) if match[3] else None
