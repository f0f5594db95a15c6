"""A real Flink: its jars from PyPI, once, into ``$HOLDFAST_CACHE``; jobs in processes of their own that can be killed.

The jars are those of ``apache-flink-libraries``, got by pip and checked by their hash. Jobs are Java, compiled against them.
``$HOLDFAST_TEST_FLINK`` names another of the versions than the newest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.tools.cache import cache_directory, locked

_HASHES = {
    "1.20.3": "sha256:f07f07a46bb272c1e851379ed92105928367019db31240091a5367fc92800289",
    "2.0.1": "sha256:23e20e76083b4501a530b3678bdfaee9f2615ae4e4f7aedfe79bb5e36ffd990b",
    "2.3.0": "sha256:38ece876553286b3a285cf344c2d2038f8a7ca10da5df54d5107250386d64151",
}
VERSION = os.environ.get("HOLDFAST_TEST_FLINK", "2.3.0")
_OPEN = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("util", "lang", "time")]
_SMALL = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
_TESTS = Path(__file__).parents[2]
_SOURCES = (*_TESTS.glob("support/flink/java/*.java"), _TESTS / "data/checkpoints/flink/Expected.java")


def jars() -> Path:
    """Return the directory of Flink's jars; skip the test where they, or a JDK, can't be had."""
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK: as root, apt-get install --no-install-recommends default-jdk-headless")
    directory = cache_directory() / f"flink-{VERSION}"
    lib = directory / "pyflink/lib"
    with locked(directory.with_suffix(".lock")):
        if not lib.exists():
            _install(directory)
    return lib


def _install(directory: Path) -> None:
    """Install beside, then rename: what is there is whole."""
    fresh = directory.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    requirement = fresh / "requirement.txt"
    requirement.write_text(f"apache-flink-libraries=={VERSION} --hash={_HASHES[VERSION]}\n")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    command += ["--require-hashes", "--no-compile", "--target", str(fresh), "--requirement", str(requirement)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"Flink's jars can't be had: {done.stderr.strip().splitlines()[-1]}")
    fresh.rename(directory)


class Flink:
    """Flink's jars, with the tests' classes compiled into ``directory``."""

    def __init__(self, directory: Path) -> None:
        lib = jars()
        self._classpath = f"{directory / 'classes'}:{lib}/*"
        self._directory = directory
        command = ["javac", "-nowarn", "-d", str(directory / "classes"), "-cp", self._classpath, *map(str, _SOURCES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def references(self, *metadata: Path) -> dict[Path, set[str]]:
        """Return what Flink itself reads in ``_metadata`` files: a word for the kind, and the path."""
        command = ["java", "-Xmx512m", *_OPEN, "-cp", self._classpath, "Expected", *map(str, metadata)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found: dict[Path, set[str]] = {}
        lines: set[str] = set()
        for line in printed.splitlines():
            word, _, rest = line.partition(" ")
            if word == "metadata":
                lines = found[Path(rest)] = set()
            elif word != "checkpoint":
                lines.add(line)
        return found

    @contextmanager
    def counting(self, settings: dict[str, str]) -> Iterator[Counting]:
        """Run the counting job; SIGKILL it at the end: what it leaves in Java's temporary directory stays in the test's."""
        with self._running("Counting", settings) as process:
            yield Counting(process, self._log)

    @contextmanager
    def restoring(self, settings: dict[str, str]) -> Iterator[Restoring]:
        """Be ready to restore the counting job from checkpoints, one after the other, in one JVM."""
        with self._running("Restoring", settings) as process:
            yield Restoring(process, self._log)

    @property
    def _log(self) -> Path:
        return self._directory / "flink.log"

    @contextmanager
    def _running(self, main: str, settings: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
        (self._directory / "tmp").mkdir(exist_ok=True)
        command = ["java", "-Xmx512m", *_SMALL, f"-Djava.io.tmpdir={self._directory / 'tmp'}", *_OPEN]
        command += ["-cp", self._classpath, main]
        command += [f"{key}={value}" for key, value in settings.items()]
        with self._log.open("ab") as stream:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, text=True)
        try:
            yield process
        finally:
            process.kill()
            with process:  # wait for it, and close the pipes
                pass


class Job:
    """A class of the tests' as it runs in a JVM: it prints lines that begin with a word."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _line(self, wanted: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == wanted:
                return rest
            self._passed_over(word, line)
        raise AssertionError(f"the job ended: {self._log.read_text(errors='replace')[-3000:]}")

    def _passed_over(self, word: str, line: str) -> None:
        """Another line than the one that is waited for."""


class Counting(Job):
    """The counting job as it runs."""

    def first(self) -> int:
        """Wait for the first number that this run is given: 0, or where the checkpoint stands from which it goes on."""
        return int(self._line("first"))

    def goes_on(self) -> int:
        """Wait until more numbers have been counted, rightly; return how far it is."""
        return int(self._line("at"))

    def savepoint(self, form: str, directory: Path) -> Path:
        """Take a savepoint below ``directory``, ``CANONICAL`` or ``NATIVE``; return its own directory."""
        self._say(f"{form} file://{directory}")
        return Path(self._line("savepoint").removeprefix("file:"))

    def _passed_over(self, word: str, line: str) -> None:
        assert word not in {"wrong", "failed"}, line


class Restoring(Job):
    """Restores of the counting job."""

    def restore(self, checkpoint: Path) -> str:
        """Restore the job: ``restored N``, where N is its first number; ``wrong at N``; or ``refused``, and why."""
        self._say(f"file://{checkpoint}")
        return self._line("answer")
