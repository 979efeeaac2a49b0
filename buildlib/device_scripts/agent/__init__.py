"""The device agent: every change and every observation on a device is one command to it.

Sent over standard input with each command and never installed, so there is nothing on a device to keep in step.
Standard library only, Python 3.9 or newer; imports nothing of the project. See `docs/decisions/0060`.
"""

from __future__ import annotations

BUNDLE = b""
"""The framed sources of this package as they were sent, for the detached job runner; set by the bootstrap."""

BOOT = ""
"""The bootstrap's own text; set by the bootstrap."""
