"""Programs in Go that tests need: found on the PATH, else in ``$HOLDFAST_CACHE/bin``, where they are built once.

Go comes with the pinned Python packages, the source from Go's module proxy, checked by Go's checksum database. What a build
needs besides (up to some 600 MiB) goes with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.tools.cache import cache_directory, locked


class BuildError(Exception):
    """Go could not build it; the message has Go's words."""


def go_program(name: str, module: str, package: str = "") -> Path:
    """Return the path of the program ``name``, which ``module`` (with its version) makes. Raises ``BuildError``.

    With ``package``, the path of a package in the module, the program is built in a copy of the module's source, where its
    own replacements of other modules count.
    """
    if found := shutil.which(name):
        return Path(found)
    directory = cache_directory() / "bin"
    binary = directory / name
    if not binary.exists():
        with locked(directory / f"{name}.lock"):
            if not binary.exists():
                _build(binary, module, package)
    return binary


def _build(binary: Path, module: str, package: str) -> None:
    with tempfile.TemporaryDirectory(dir=binary.parent) as directory:
        places = {"GOBIN": directory, "GOPATH": f"{directory}/modules", "GOCACHE": f"{directory}/cache"}
        environment = {**os.environ, **places, "GOFLAGS": "-modcacherw"}
        if package:
            found = json.loads(_go(["mod", "download", "-json", module], environment, directory, binary))["Dir"]
            source = shutil.copytree(found, f"{directory}/source")
            _go(["build", "-o", f"{directory}/{binary.name}", f"./{package}"], environment, source, binary)
        else:
            _go(["install", module], environment, directory, binary)
        Path(directory, binary.name).rename(binary)


def _go(arguments: list[str], environment: Mapping[str, str], directory: str, binary: Path) -> str:
    try:
        done = subprocess.run(
            ["go", *arguments], cwd=directory, env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise BuildError(f"{binary.name} is neither on the PATH nor in {binary.parent}, and there is no Go") from None
    if done.returncode != 0:
        raise BuildError(f"go {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout
