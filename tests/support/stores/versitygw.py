"""versitygw, the S3 server of the tests: found on the PATH, else in ``$HOLDFAST_CACHE/bin``, where it is built once.

``python -m tests.support.stores.versitygw`` makes sure that it is there. Go comes with the pinned Python packages, the
source from Go's module proxy, checked by Go's checksum database. What the build needs besides (some 600 MiB) goes with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.tools.cache import cache_directory, locked

_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


class BuildError(Exception):
    """Go could not build it; the message has Go's words."""


def versitygw_binary() -> Path:
    """Return the path of the program. Raises ``BuildError``."""
    if found := shutil.which("versitygw"):
        return Path(found)
    directory = cache_directory() / "bin"
    binary = directory / "versitygw"
    if not binary.exists():
        with locked(directory / "versitygw.lock"):
            if not binary.exists():
                _build(binary)
    return binary


def _build(binary: Path) -> None:
    with tempfile.TemporaryDirectory(dir=binary.parent) as directory:
        places = {"GOBIN": directory, "GOPATH": f"{directory}/modules", "GOCACHE": f"{directory}/cache"}
        environment = {**os.environ, **places, "GOFLAGS": "-modcacherw"}
        try:
            built = subprocess.run(["go", "install", _MODULE], env=environment, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise BuildError(f"versitygw is neither on the PATH nor in {binary.parent}, and there is no Go") from None
        if built.returncode != 0:
            raise BuildError(f"go install {_MODULE} failed:\n{built.stderr}")
        Path(directory, "versitygw").rename(binary)


if __name__ == "__main__":
    versitygw_binary()
