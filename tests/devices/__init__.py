"""Test devices: real OpenSSH servers on loopback, each over a root laid out like a comma device's.

    with comma_device(tmp_path) as device:
        transport = SshTransport(device.catalog_device, home=device.home)

`pytestmark = SSHD_MARKS` marks tests that start one: skipped with a line where there is no OpenSSH server, never in CI.
"""

from tests.devices.comma import CommaDevice, comma_device
from tests.devices.layout import lay_out
from tests.devices.network import Link, link
from tests.devices.server import SSHD_MARKS, Sshd, make_key, sshd

__all__ = ["SSHD_MARKS", "CommaDevice", "Link", "Sshd", "comma_device", "lay_out", "link", "make_key", "sshd"]
