"""The Sparks of the matrix, each in a virtual environment of its own with pinned packages, outside of the checkout.

``pins/VERSION.txt`` has the packages with their hashes; the newest Spark is the project's own.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools.cache import cache_directory, locked

_PINS = Path(__file__).parent / "pins"
_ROOT = Path(__file__).parents[2]
_INSTALL_SECONDS = 900
_NEWEST_PYTHONS = {(3, 5): (3, 11)}
"""The newest Python of releases for which this one may be too new. Spark 3.5 imports ``distutils``, which 3.12 lacks."""


class NotInstalledError(Exception):
    """A Spark can't be had, for the reason given."""


@dataclass(frozen=True)
class Spark:
    """A version of Spark."""

    version: str

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)

    @property
    def short(self) -> str:
        """Major and minor version, as text."""
        return ".".join(map(str, self.release))

    def runs_here(self) -> bool:
        """Say whether this Python is one that the release runs on."""
        return sys.version_info[:2] <= _NEWEST_PYTHONS.get(self.release, sys.version_info[:2])

    def python(self) -> Path:
        """Return the Python that has this Spark, installed where it is not yet. Raises ``NotInstalledError``."""
        if not self.runs_here():
            raise NotInstalledError(f"Spark {self.short} does not run on Python {platform.python_version()}")
        pins = _PINS / f"{self.version}.txt"
        if not pins.exists():
            return Path(sys.executable)
        constraints = (_ROOT / "constraints.txt").read_text()
        key = hashlib.sha256(f"{pins.read_text()}{sys.version}".encode()).hexdigest()[:16]
        directory = cache_directory() / f"spark-{self.version}-{key}"
        if not (directory / "complete").exists():
            with locked(Path(f"{directory}.lock")):
                if not (directory / "complete").exists():
                    _install(directory, pins, constraints)
        return directory / "bin/python"

    def environment(self) -> dict[str, str]:
        """Return the variables by which its programs run this Python, with the checkout's code."""
        path = f"{_ROOT}{os.pathsep}{os.environ['PYTHONPATH']}"
        return {"PYSPARK_PYTHON": str(self.python()), "PYTHONPATH": path}

    def home(self) -> Path:
        """Return the directory of its own programs and jars."""
        program = "import os, pyspark; print(os.path.dirname(pyspark.__file__))"
        done = subprocess.run([self.python(), "-c", program], capture_output=True, text=True, check=True)
        return Path(done.stdout.strip())


def sparks() -> list[Spark]:
    """Return all, the oldest first."""
    match = re.search(r"^pyspark==(\S+)", (_ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert match is not None
    versions = [pins.stem for pins in _PINS.glob("*.txt")]
    return sorted((Spark(version) for version in [*versions, match[1]]), key=lambda spark: spark.release)


def _install(directory: Path, pins: Path, constraints: str) -> None:
    print(f"installing Spark {pins.stem} into {directory} (once; a minute or two)", file=sys.stderr, flush=True)
    _run(sys.executable, "-m", "venv", "--clear", str(directory))
    pip = re.search(r"^pip==.*(?:\n .*--hash.*)+", constraints, re.MULTILINE)
    assert pip is not None
    (directory / "pip.txt").write_text(pip[0] + "\n")
    install = [str(directory / "bin/python"), "-m", "pip", "install", "-q", "--require-hashes"]
    _run(*install, "-r", str(directory / "pip.txt"))
    _run(*install, "--no-deps", "--build-constraint", str(_ROOT / "constraints.txt"), "-r", str(pins))
    (directory / "complete").touch()


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"{' '.join(command[:5])} …: no end after {_INSTALL_SECONDS} s") from None
    if done.returncode:
        raise NotInstalledError(f"{' '.join(command[:5])} …: {done.stderr[-1000:]}")
