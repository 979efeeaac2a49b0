"""The private keys that a login may use. No passwords; the agent only where the device asks for it."""

from __future__ import annotations

import base64
import binascii
import errno
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

from buildlib.core.catalog import Device
from buildlib.errors import DeviceError
from buildlib.store import files
from buildlib.transports.ssh_config import Hop

MOST_AGENT_KEYS = 5
"""Servers hang up after six refused keys."""


@dataclass(kw_only=True)
class Keys:
    """usable: (label, key) in the order to try. notes: keys passed over and why. remedy: what would help most."""

    usable: list[tuple[str, paramiko.PKey]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    remedy: str | None = None


def private_keys(device: Device, hop: Hop) -> Keys:
    """Loads what a hop may be offered.

    Raises DeviceError for a chosen key that is missing, or encrypted without an agent: guessing on with other keys
    would end in a refusal that hides the reason.
    """
    keys = Keys()
    wanted: list[bytes] = []
    for path in hop.identities:
        try:
            if odd := files.special(path):
                raise OSError(errno.EINVAL, f"it is {odd}")
            if (public := _public_blob(path.with_name(path.name + ".pub"))) is not None:
                wanted.append(public)
            keys.usable.append((str(path), paramiko.PKey.from_path(path)))
        except FileNotFoundError:
            if hop.chosen:
                raise DeviceError(
                    "the private key is missing",
                    where=device.name,
                    expected=str(path),
                    remedy=f"check `identity` in models.yaml, or make one: ssh-keygen -t ed25519 -f {path}",
                ) from None
        except (TypeError, paramiko.PasswordRequiredException):
            # A key that is locked says so with a TypeError, of all things.
            if device.agent:
                continue
            remedy = f"ssh-add {path}, and `agent: true` for {device.name} in models.yaml"
            if hop.chosen:
                raise DeviceError(
                    "the private key is encrypted, and no passphrase is asked for here",
                    where=device.name,
                    got=str(path),
                    remedy=remedy,
                ) from None
            keys.notes.append(f"{path} is encrypted")
            keys.remedy = remedy
        except (OSError, ValueError, paramiko.SSHException) as error:
            if hop.chosen:
                why = getattr(error, "strerror", None) or "not a key of a known type"
                raise DeviceError(
                    f"the private key cannot be read: {why}",
                    where=device.name,
                    expected="an OpenSSH key: ed25519, ecdsa or rsa",
                    got=str(path),
                    remedy="name the private half in `identity`, without .pub; `ssh-keygen -lf FILE` knows keys",
                ) from None
            keys.notes.append(f"{path} is unreadable")
    if device.agent:
        _add_agent(device, hop, keys, wanted)
    if not keys.usable and not keys.notes:
        raise DeviceError(
            "there is no private key to log in with",
            where=device.name,
            remedy="`identity: PATH` in models.yaml, or IdentityFile in ~/.ssh/config; "
            "passwords are not used: ssh-keygen -t ed25519, then ssh-copy-id",
        )
    return keys


def _add_agent(device: Device, hop: Hop, keys: Keys, wanted: list[bytes]) -> None:
    offered = list(paramiko.Agent().get_keys())
    if not offered:
        keys.notes.append("the agent holds no key, or none runs")
        keys.remedy = keys.remedy or "start one: eval $(ssh-agent); ssh-add " + str(next(iter(hop.identities), ""))
        return
    if hop.chosen and wanted:
        offered = [key for key in offered if key.asbytes() in wanted]
    loaded = {key.asbytes() for _, key in keys.usable}
    for key in [key for key in offered if key.asbytes() not in loaded][:MOST_AGENT_KEYS]:
        keys.usable.append((f"agent:{key.comment or key.get_name()}", key))
    if not keys.usable:
        keys.notes.append(f"the agent does not hold {', '.join(map(str, hop.identities))}")
        keys.remedy = f"ssh-add {hop.identities[0]}"


def _public_blob(path: Path) -> bytes | None:
    """The key in a .pub file; None where there is none."""
    try:
        if files.special(path):
            return None
        fields = path.read_text(encoding="utf-8").split()
        return base64.b64decode(fields[1])
    except (OSError, UnicodeDecodeError, IndexError, binascii.Error):
        return None
