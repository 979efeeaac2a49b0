"""An SSH connection through every hop, each one's host key checked before anything is told to it."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import time
from collections.abc import Iterator
from threading import Event

import paramiko

from buildlib.core.catalog import Device
from buildlib.errors import Cancelled, DeviceError, DeviceUnreachable, HostKeyError
from buildlib.transports.faults import refuse_cancelled
from buildlib.transports.ssh_config import Hop
from buildlib.transports.ssh_keys import private_keys
from buildlib.transports.ssh_known_hosts import KnownKey, fingerprint, judge, keys_for
from buildlib.transports.ssh_watch import TICK, Watch

# Measured (facts, section 6): a larger window is slower, and GCM is twice as fast as the CTR that paramiko prefers.
WINDOW = 4 * 1024 * 1024
PACKET = 128 * 1024
FAST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
WEAK_CIPHERS = ("3des-cbc", "aes128-cbc", "aes192-cbc", "aes256-cbc")
KEEPALIVE = 15
"""Seconds. Keeps address translators on the way from forgetting a connection that waits for a long compile."""

# Without a handler, Python prints paramiko's tracebacks to standard error; the errors here say it in one line.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Connection:
    """Logged in to a device. `transport` is the last hop's; closing ends all of them, the last hop first."""

    def __init__(self, chain: list[paramiko.Transport]) -> None:
        self._chain = chain
        self.transport = chain[-1]

    @property
    def alive(self) -> bool:
        return all(transport.is_active() for transport in self._chain)

    def close(self) -> None:
        close_all(self._chain)


def connect(device: Device, hops: tuple[Hop, ...], *, cancel: Event | None) -> Connection:
    """Opens every hop of a route and logs in to each.

    Raises DeviceUnreachable, DeviceError (login refused, unusable key), HostKeyError, Cancelled.
    """
    chain: list[paramiko.Transport] = []
    try:
        for hop in hops:
            transport = greet(device, hop, through=chain[-1] if chain else None, cancel=cancel)
            chain.append(transport)
            check_host_key(device, hop, transport.get_remote_server_key())
            log_in(device, hop, transport, cancel)
            transport.set_keepalive(KEEPALIVE)
    except BaseException:
        close_all(chain)
        raise
    return Connection(chain)


def greet(device: Device, hop: Hop, *, through: paramiko.Transport | None, cancel: Event | None) -> paramiko.Transport:
    """A connection to one hop with keys exchanged: its host key is proven but not yet judged, nobody is logged in."""
    limit = device.timeouts.connect
    # A host is asked for the kind of key that it is known by.
    wanted = {kind for known in known_keys(hop) if not known.marker for kind in _algorithms(known.key_type)}
    link = _tcp(device, hop, cancel) if through is None else _tunnel(device, hop, through, cancel)
    try:
        transport = paramiko.Transport(link, default_window_size=WINDOW, default_max_packet_size=PACKET)
    except BaseException:
        link.close()
        raise
    # `Watch` bounds every wait below; these would only end it earlier with a vaguer word.
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = limit * 2
    transport.channel_timeout = limit
    options = transport.get_security_options()
    usable = [cipher for cipher in options.ciphers if cipher not in WEAK_CIPHERS]
    options.ciphers = (*FAST_CIPHERS, *(cipher for cipher in usable if cipher not in FAST_CIPHERS))
    options.key_types = tuple(sorted(options.key_types, key=lambda kind: kind not in wanted))
    try:
        with _bounded(device, hop, transport, cancel):
            transport.start_client()
    except paramiko.ssh_exception.IncompatiblePeer as error:
        raise DeviceError(
            f"no common algorithm: {error}", where=_where(device, hop), remedy="update the SSH server there"
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise DeviceUnreachable(
            f"no SSH handshake: {_words(error)}",
            where=_where(device, hop),
            remedy=f"is this the SSH port, and is its server well? try `ssh -v -p {hop.port} {hop.user}@{hop.host}`",
        ) from error
    finally:
        if not transport.is_active():
            transport.sock.close()
    return transport


def known_keys(hop: Hop) -> list[KnownKey]:
    """What the known_hosts files say about a hop, the project's file first.

    Raises HostKeyError for a file that is there and cannot be read: it may be the one that revokes the key.
    """
    found = []
    for file in hop.known_hosts:
        try:
            # A pipe or a device file would be waited for without end.
            text = file.read_bytes().decode("utf-8", "surrogateescape") if file.is_file() else ""
            if not text:
                file.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise HostKeyError(
                f"known_hosts cannot be read: {_words(error)}",
                where=str(file),
                remedy="what it says of the host is not known, so nobody is logged in; correct its owner, mode or link",
            ) from error
        found += keys_for(hop.key_name, str(file), text)
    return found


def check_host_key(device: Device, hop: Hop, key: paramiko.PKey) -> None:
    """Raises HostKeyError unless the key is the known one."""
    blob = key.asbytes()
    verdict, line = judge(known_keys(hop), blob)
    shown = f"{key.get_name()} {fingerprint(blob)}"
    if verdict == "known":
        return
    if line is None:
        kind = key.get_name().removeprefix("ssh-").partition("-")[0]
        raise HostKeyError(
            f"the host key of {hop.key_name} is unknown",
            where=_where(device, hop),
            got=shown,
            remedy=f"compare with `ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub` there, "
            f"then doit doctor --trust {device.name} {fingerprint(blob)}",
        )
    if verdict == "revoked":
        raise HostKeyError(
            f"the host key of {hop.key_name} is revoked by {line.file}:{line.line}",
            where=_where(device, hop),
            got=shown,
            remedy="do not connect; give the host a new key",
        )
    raise HostKeyError(
        f"the host key of {hop.key_name} has CHANGED: another machine answers, or it was reinstalled",
        where=_where(device, hop),
        expected=f"{line.key_type} {fingerprint(line.blob)} ({line.file}:{line.line})",
        got=shown,
        remedy=f"only if you know why: delete line {line.line} of {line.file} by hand, then trust the new key",
    )


def close_all(chain: list[paramiko.Transport]) -> None:
    """Closes connections, the innermost first."""
    for transport in reversed(chain):
        transport.close()


def log_in(device: Device, hop: Hop, transport: paramiko.Transport, cancel: Event | None) -> None:
    """Offers each key that the hop may be offered. Raises DeviceError when none is taken."""
    keys = private_keys(device, hop)
    refusal = ""
    for _, key in keys.usable:
        try:
            with _bounded(device, hop, transport, cancel):
                more = transport.auth_publickey(hop.user, key)
            if not more:
                return
            refusal = f"it also wants {', '.join(more)}"
        except paramiko.BadAuthenticationType as error:
            refusal = f"it takes no keys, only {', '.join(error.allowed_types)}"
            break
        except (paramiko.SSHException, OSError, EOFError) as error:
            refusal = "" if isinstance(error, paramiko.AuthenticationException) else _words(error)
            if not transport.is_active():
                break
    tried = ", ".join(label for label, _ in keys.usable) or "no key"
    public = next((label for label, _ in keys.usable), "KEY")
    raise DeviceError(
        f"login as {hop.user} refused" + (f": {refusal}" if refusal else ""),
        where=_where(device, hop),
        got=f"{tried} offered" + (f"; {'; '.join(keys.notes)}" if keys.notes else ""),
        remedy=keys.remedy
        or f"is `user` right? else add the public key: `ssh-copy-id -i {public} -p {hop.port} {hop.user}@{hop.host}`",
    )


def _tcp(device: Device, hop: Hop, cancel: Event | None) -> socket.socket:
    where = _where(device, hop)
    try:
        addresses = socket.getaddrinfo(hop.host, hop.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise DeviceUnreachable(
            f"no host is called {hop.host}: {_words(error)}",
            where=where,
            remedy="check `host` in models.yaml, or HostName in ~/.ssh/config",
        ) from error
    deadline = time.monotonic() + device.timeouts.connect
    failure: OSError = TimeoutError(f"no answer within {device.timeouts.connect:g} s")
    for family, kind, protocol, _, address in addresses:
        try:
            return _dial(socket.socket(family, kind, protocol), address, deadline, device, cancel)
        except OSError as error:
            failure = error
    refused = isinstance(failure, ConnectionRefusedError)
    raise DeviceUnreachable(
        f"port {hop.port} is closed" if refused else f"no connection: {_words(failure)}",
        where=where,
        remedy=f"does an SSH server listen on {hop.host}:{hop.port}? check `port`, and that SSH is enabled there"
        if refused
        else f"is it on, and on this network? try `ping {hop.host}`",
    ) from failure


def _dial(
    link: socket.socket, address: tuple[object, ...], deadline: float, device: Device, cancel: Event | None
) -> socket.socket:
    """connect() that a cancel ends."""
    try:
        link.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(link, selectors.EVENT_WRITE)
            link.connect_ex(address)
            while not selector.select(TICK):
                refuse_cancelled(device.name, cancel)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no answer within {device.timeouts.connect:g} s")
        code = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.settimeout(device.timeouts.connect)
    except BaseException:
        link.close()
        raise
    return link


def _tunnel(device: Device, hop: Hop, through: paramiko.Transport, cancel: Event | None) -> paramiko.Channel:
    try:
        with _bounded(device, hop, through, cancel):
            return through.open_channel("direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0))
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise DeviceUnreachable(
            f"the jump host cannot reach {hop.host}:{hop.port}: {_words(error)}",
            where=_where(device, hop),
            remedy="check `host` and `port` as seen from the jump host, and that it allows TCP forwarding",
        ) from error


@contextlib.contextmanager
def _bounded(device: Device, hop: Hop, transport: paramiko.Transport, cancel: Event | None) -> Iterator[None]:
    """Bounds a handshake step by `timeouts.connect` and by cancel, whatever paramiko waits for."""
    refuse_cancelled(device.name, cancel)
    watch = Watch(transport, limit=device.timeouts.connect, cancel=cancel)
    try:
        with watch:
            yield
    finally:
        if watch.fired == "cancel":
            raise Cancelled("stopped on request", where=device.name)
        if watch.fired == "silence":
            raise DeviceUnreachable(
                "it accepts the connection and then says nothing",
                where=_where(device, hop),
                expected=f"an SSH server within {device.timeouts.connect:g} s",
                got="silence",
                remedy="restart the device or its SSH server; `timeouts.connect` is how long to wait",
            )


def _where(device: Device, hop: Hop) -> str:
    return f"{device.name} ({hop.address})" if hop.label == device.name else f"{device.name} (jump {hop.address})"


def _algorithms(key_type: str) -> tuple[str, ...]:
    return ("rsa-sha2-512", "rsa-sha2-256") if key_type == "ssh-rsa" else (key_type,)


def _words(error: BaseException) -> str:
    """An exception as words for a sentence."""
    text = getattr(error, "strerror", None) or str(error)
    return text.rstrip(".") if text else {"EOFError": "it hung up"}.get(type(error).__name__, type(error).__name__)
