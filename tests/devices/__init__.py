"""Test devices: real OpenSSH servers on loopback, each over a root laid out like a comma device's.

    with comma_device(tmp_path) as device:
        transport = SshTransport(device.catalog_device, home=device.home)

`needs_sshd` marks a test that starts one: skipped with a line where OpenSSH's server is missing, never in CI.
"""

from tests.devices.comma import CommaDevice, comma_device
from tests.devices.layout import lay_out
from tests.devices.network import Link, link
from tests.devices.server import Sshd, needs_sshd, sshd

__all__ = ["CommaDevice", "Link", "Sshd", "comma_device", "lay_out", "link", "needs_sshd", "sshd"]
