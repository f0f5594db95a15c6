"""An HDFS for tests that speaks HTTPS alone, with a certificate of its own for 127.0.0.1."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.remote import UploadSource, open_store
from tests.support.stores.hdfs import HDFS_POM, need_jars, serving_hdfs, write_site

_FIRST_SECONDS = 300.0
_PASSWORD = "changeit"
_SETTINGS = (
    "dfs.http.policy=HTTPS_ONLY",
    "dfs.namenode.https-address=127.0.0.1:0",
    "dfs.datanode.https.address=127.0.0.1:0",
    "dfs.permissions.enabled=false",
)


@dataclass(frozen=True)
class HttpsHdfs:
    """The root directory of a running HDFS, where permissions are not enforced."""

    port: int
    certificate: Path
    """The server's certificate (PEM), which nobody has signed but itself."""

    @property
    def url(self) -> str:
        """The directory as a store's URL."""
        return f"swebhdfs://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Options for ``open_store``."""
        return {"user": "holdfast", "ca_file": str(self.certificate)}


@contextmanager
def serving_https_hdfs() -> Iterator[HttpsHdfs]:
    """Run an HDFS until the block ends. Raises ``NoHdfsError``."""
    base = os.environ.get("HOLDFAST_TEST_DIRECTORY", "/var/tmp")
    with tempfile.TemporaryDirectory(prefix="holdfast-keys-", dir=base) as name:
        directory = Path(name)
        certificate = _make_certificate(directory)
        with serving_hdfs(*_SETTINGS, configuration=directory) as server:
            running = HttpsHdfs(server.http_port, certificate)
            _greet(running)
            yield running


@pytest.fixture(scope="session")
def https_hdfs() -> Iterator[HttpsHdfs]:
    """An HDFS with HTTPS for all tests."""
    need_jars(HDFS_POM)
    with serving_https_hdfs() as running:
        yield running


def _greet(server: HttpsHdfs) -> None:
    """Store an object: the first handshakes with namenode and datanode may take longer than any later ones."""
    patient = open_store(
        f"{server.url}/first",
        server.options,
        {},
        request_timeout_seconds=_FIRST_SECONDS,
        connect_timeout_seconds=_FIRST_SECONDS,
    )
    patient.write("object", UploadSource(1, data=b"x"), {}, create_only=True)


def _make_certificate(directory: Path) -> Path:
    """Put a key with its certificate, and the file that names them to Hadoop, into ``directory``; return the certificate."""
    store, certificate = directory / "keys.p12", directory / "certificate.pem"
    keytool = ["keytool", "-keystore", str(store), "-storepass", _PASSWORD, "-alias", "hdfs"]
    subject = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-keyalg", "EC", "-validity", "365"]
    subprocess.run([*keytool, "-genkeypair", *subject, "-storetype", "PKCS12"], check=True, capture_output=True)
    subprocess.run([*keytool, "-exportcert", "-rfc", "-file", str(certificate)], check=True, capture_output=True)
    settings = {"location": store, "type": "pkcs12", "password": _PASSWORD, "keypassword": _PASSWORD}
    write_site(directory, {f"ssl.server.keystore.{name}": value for name, value in settings.items()}, "ssl-server.xml")
    return certificate
