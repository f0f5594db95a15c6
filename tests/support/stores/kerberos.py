"""MIT Kerberos for tests: its programs and gssapi, from Debian's packages, unpacked in the cache; nothing is installed."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.stores.hdfs import SecureHdfs
from tests.support.tools.debian_packages import unpacked

_CONFIGURATION = """
[libdefaults]
default_realm = EXAMPLE.COM
udp_preference_limit = 1
dns_canonicalize_hostname = false
ticket_lifetime = {lifetime_seconds}s
[realms]
EXAMPLE.COM = {{
  kdc = 127.0.0.1:{port}
}}
"""


@dataclass(frozen=True)
class KerberosClient:
    """A client of one KDC, with a cache for its tickets that is empty at first."""

    packages: Path
    cache: Path

    def log_in(self, user: str, keytab: Path) -> None:
        """Put a new ticket in place of what is in the cache, as cron jobs do with kinit."""
        self._run("kinit", "-k", "-t", keytab, user)

    def ticket(self) -> str:
        """Return the line about the ticket that gives others: its user's first."""
        return next(line for line in self._run("klist").splitlines() if "krbtgt/" in line)

    def _run(self, program: str, *arguments: str | Path) -> str:
        programs = self.packages / "usr/bin"
        name = next(name for name in (program, f"{program}.mit") if (programs / name).exists())  # the latter on Debian 13
        libraries = {str(library.parent) for library in self.packages.glob("usr/lib/*/*.so.*")}  # that the system lacks
        command = [programs / name, *arguments]
        environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def kerberos_packages() -> Path:
    """Return where the packages are unpacked. Raises ``OSError`` or ``subprocess.CalledProcessError`` without them."""
    return unpacked("kerberos", ("python3-gssapi", "krb5-user"), with_dependencies=True)


def client_of(
    server: SecureHdfs, directory: Path, monkeypatch: pytest.MonkeyPatch, *, lifetime_seconds: int = 3600
) -> KerberosClient:
    """Let this process be a client of the server's KDC, whose files are in ``directory``."""
    packages, configuration, cache = kerberos_packages(), directory / "krb5.conf", directory / "tickets"
    configuration.write_text(_CONFIGURATION.format(port=server.kdc_port, lifetime_seconds=lifetime_seconds))
    monkeypatch.syspath_prepend(packages / "usr/lib/python3/dist-packages")
    monkeypatch.setenv("KRB5_CONFIG", str(configuration))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    return KerberosClient(packages, cache)
