"""Downloads over https: only from a server whose certificate is trusted, and never led out of it to plain http."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from buildlib.core.catalog import UrlSource
from buildlib.errors import SourceError, SourceUnavailable
from buildlib.ports.source import SourceContext
from buildlib.sources import reader
from tests.integration.sources.conftest import Served, _Handler, running

Make = Callable[..., SourceContext]
CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for this machine that it signed itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
        .add_extension(here, critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(private + made.public_bytes(pem))
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[Served]:
    """The faulty server, over TLS."""
    state = Served(files={"/m.onnx": CONTENT})
    host = running(type("Handler", (_Handler,), {"served": state}))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    host.server.socket = tls.wrap_socket(host.server.socket, server_side=True)
    with host as port:
        state.url = f"https://127.0.0.1:{port}"
        yield state


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


@pytest.mark.usefixtures("trusted")
def test_a_cut_download_from_a_trusted_server_is_resumed(secure: Served, context: Make, tmp_path: Path) -> None:
    secure.cut_after = [90_000]
    fetched = reader(UrlSource(url=f"{secure.url}/m.onnx", sha256=SHA256), context()).fetch(tmp_path / "m.onnx")
    assert fetched.path.read_bytes() == CONTENT
    assert [headers.get("Range") for _, headers in secure.seen] == [None, "bytes=90000-"]


def test_a_server_that_nobody_vouches_for_is_asked_nothing(secure: Served, context: Make, tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="certificate is not trusted") as caught:
        reader(UrlSource(url=f"{secure.url}/m.onnx", sha256=SHA256), context()).fetch(tmp_path / "m.onnx")
    assert "certificate authority" in (caught.value.remedy or "")
    assert secure.seen == []
    assert list(tmp_path.glob("*.onnx*")) == []


@pytest.mark.usefixtures("trusted")
def test_nobody_is_led_from_https_to_http(secure: Served, served: Served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"] = CONTENT
    secure.redirects["/m.onnx"] = f"{served.url}/m.onnx"
    with pytest.raises(SourceError, match="another scheme"):
        reader(UrlSource(url=f"{secure.url}/m.onnx", sha256=SHA256), context()).fetch(tmp_path / "m.onnx")
    assert served.seen == []
