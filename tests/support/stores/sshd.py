"""OpenSSH's server from Debian's packages, unpacked in the cache: nothing is installed, and none runs but the tests' own.

It runs as root, in a mount namespace in which there is a user ``sshd``, whom the server wants for what is not trusted yet.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.support.stores.servers import directory_of_server, served_by
from tests.support.tools.debian_packages import unpacked

_PACKAGES = ("openssh-server", "openssh-sftp-server")
_PARTS = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
"""Programs that newer servers are divided into, by the settings that say where they are."""

_IN_NAMESPACE = """
mount --bind "$0" /etc/passwd
mount -t tmpfs tmpfs /run
mkdir /run/sshd
exec "$@"
"""


@dataclass(frozen=True)
class Sshd:
    """A directory behind a running server."""

    port: int
    directory: Path
    key: Path
    other_key: Path
    """A key that the server does not take."""
    pid: int

    @property
    def url(self) -> str:
        """The directory as a store's URL."""
        return f"sftp://127.0.0.1{self.directory}"

    @property
    def options(self) -> dict[str, Any]:
        """Options for ``open_store``, credentials included."""
        return {"port": self.port, "username": "root", "key_filename": str(self.key)}


def sshd_packages() -> Path:
    """Return where the packages are unpacked. Raises ``OSError`` or ``subprocess.CalledProcessError`` without them."""
    return unpacked("openssh", _PACKAGES, with_dependencies=True)


@contextmanager
def serving_sshd() -> Iterator[Sshd]:
    """Run a server until the block ends."""
    packages = sshd_packages()
    with directory_of_server() as directory:
        host, key, other_key = (_new_key(directory / name) for name in ("host", "key", "other"))
        passwd = directory / "passwd"
        users = Path("/etc/passwd").read_text()
        passwd.write_text(users + ("" if "\nsshd:" in users else "sshd:x:105:65534::/run/sshd:/usr/sbin/nologin\n"))
        objects = directory / "objects"
        objects.mkdir()
        settings = {
            "HostKey": host,
            "AuthorizedKeysFile": key.with_suffix(".pub"),
            "PermitRootLogin": "prohibit-password",
            "StrictModes": "no",
            "UsePAM": "no",
            "PidFile": "none",
            "MaxStartups": 100,
            "Subsystem": f"sftp {packages}/usr/lib/openssh/sftp-server",
        }
        parts = {setting: packages / "usr/lib/openssh" / name for setting, name in _PARTS.items()}
        settings |= {setting: program for setting, program in parts.items() if program.exists()}
        libraries = packages / "usr/lib" / sysconfig.get_config_var("MULTIARCH")

        def command(port: int) -> list[str]:
            config = directory / "config"
            lines = {**settings, "ListenAddress": f"127.0.0.1:{port}"}
            config.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
            within = ["unshare", "--mount", "--propagation", "private", "bash", "-ec", _IN_NAMESPACE, str(passwd)]
            server = [f"{packages}/usr/sbin/sshd", "-D", "-e", "-f", str(config)]
            return [*within, "env", f"LD_LIBRARY_PATH={libraries}", *server]

        with served_by(command, directory / "sshd.out") as (port, pid):
            yield Sshd(port, objects, key, other_key, pid)


def _new_key(path: Path) -> Path:
    key = Ed25519PrivateKey.generate()
    path.touch(0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return path
