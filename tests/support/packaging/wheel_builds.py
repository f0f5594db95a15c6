"""Builds of wheels and source archives from a copy of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
COMPILERS = ("gcc", "cc", "x86_64-linux-gnu-gcc", "aarch64-linux-gnu-gcc", "ld", "as")
_BUILT = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def copied(directory: Path) -> Path:
    """Copy what is built of the checkout."""
    for name in ("daemon", "spark_integration"):
        shutil.copytree(CHECKOUT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _BUILT:
        shutil.copy(CHECKOUT / name, directory)
    return directory


def attempt(kind: str, directory: Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Build a ``bdist_wheel`` or ``sdist`` in a directory; return what came of it."""
    command = [sys.executable, "setup.py", kind]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, env=environment)


def built(kind: str, directory: Path, environment: dict[str, str] | None = None) -> tuple[Path, str]:
    """Build a ``bdist_wheel`` or ``sdist`` in a directory; return it, and what the build says."""
    done = attempt(kind, directory, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    (archive,) = (directory / "dist").iterdir()
    return archive, done.stderr


def with_programs(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Return an environment with no more than these programs on the ``PATH``, which is made in ``directory``."""
    directory.mkdir()
    for name in names:
        if (found := shutil.which(name)) is not None:
            (directory / name).symlink_to(found)
    return {**{key: value for key, value in os.environ.items() if key != "JAVA_HOME"}, "PATH": str(directory)}
