"""Builds of the Debian package for tests: on this machine, or in a container of another release of Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.debian.bare_debian import OWN_RELEASE, bare_debian, run_in
from tests.support.tools.cache import cache_directory

_CHECKOUT = Path(__file__).parents[3]
_QUICKLY = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}  # in a third of the time


def build(release: str, directory: Path, version: str) -> Path:
    """Build the package for ``release`` into the empty ``directory``; return it."""
    if release == OWN_RELEASE:
        command = [sys.executable, "-m", "systemd.debian", f"--version={version}", f"--output={directory}"]
        subprocess.run(command, check=True, cwd=_CHECKOUT, capture_output=True, env={**os.environ, **_QUICKLY})
    else:
        _build_elsewhere(release, directory, version)
    (package,) = directory.glob("holdfast_*.deb")
    return package


def rebuilt(package: Path, version: str) -> Path:
    """Build the same package again with another version, beside it; return that."""
    unpacked = package.parent / "unpacked"
    subprocess.run(["dpkg-deb", "--raw-extract", package, unpacked], check=True)
    control = unpacked / "DEBIAN/control"
    text = control.read_text()
    _, old, _ = package.name.split("_")
    assert f"\nVersion: {old}\n" in text
    control.write_text(text.replace(f"\nVersion: {old}\n", f"\nVersion: {version}\n"))
    other = package.with_name(package.name.replace(f"_{old}_", f"_{version}_"))
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", unpacked, other], check=True, env={**os.environ, **_QUICKLY}
    )
    shutil.rmtree(unpacked)
    return other


def _build_elsewhere(release: str, directory: Path, version: str) -> None:
    """As the documentation says, with ``./run deb``; its Python packages are kept for the next time."""
    kept = cache_directory() / f"builder-{release}"
    kept.mkdir(exist_ok=True)
    certificates = Path(os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt"))
    binds = {_CHECKOUT: "/checkout", certificates: "/certificates"}
    variables = {"HOLDFAST_CACHE": "/kept", "PIP_CACHE_DIR": "/kept/pip", "PIP_CERT": "/certificates", **_QUICKLY}
    words = " ".join(f"{name}={value}" for name, value in variables.items())
    command = f"{words} /checkout/run deb --version={version} --output=/out"
    with bare_debian(release) as root:
        run_in(root, command, binds, f"--bind={kept}:/kept", f"--bind={directory}:/out")
