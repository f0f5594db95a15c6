"""HDFS for tests: Hadoop's own namenode and datanode in one process, which ends with whoever has started it.

The jars (90 MB) come once from Maven Central, as ``hdfs_pom.xml`` and ``minikdc_pom.xml`` name them, into
``$HOLDFAST_CACHE/hdfs-VERSION`` and ``minikdc-VERSION``; Maven checks them by their checksums. The fixture ``hdfs`` of
session scope skips with the reason where there is no Java or Maven, or Maven can't get them.
``python -m tests.support.stores.hdfs`` makes sure that they are there.
"""

from __future__ import annotations

import getpass
import itertools
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import fsspec
import httpx
import pytest

from tests.support.processes.children import DIES_WITH_US
from tests.support.processes.stopping import stop
from tests.support.tools.cache import cache_directory, locked

_HERE = Path(__file__).parent
HDFS_POM = _HERE / "hdfs_pom.xml"
_MINIKDC = _HERE / "minikdc_pom.xml"
_START_SECONDS = 300.0
_READY = re.compile(rb"^READY (\d+) (\d+)$", re.MULTILINE)
_JAVA = ("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_KDC = re.compile(rb"^KDC (\d+)$", re.MULTILINE)
_TOKEN = re.compile(rb"^TOKEN (\S+)$", re.MULTILINE)
_JDK_KERBEROS = ("--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",)
FAST = ("dfs.namenode.edits.noeditlogchannelflush=true",)


class NoHdfsError(OSError):
    """There is no HDFS to run; the message says why."""


@dataclass(frozen=True)
class Hdfs:
    """A directory of a running HDFS, where permissions are enforced."""

    rpc_port: int
    http_port: int
    pid: int
    directory: str = ""

    @property
    def url(self) -> str:
        """The directory as a store's URL."""
        return f"hdfs://127.0.0.1:{self.rpc_port}{self.directory}"

    @property
    def options(self) -> dict[str, str]:
        """Options for ``open_store``."""
        return {"namenodes": f"127.0.0.1:{self.http_port}", "user": "holdfast"}

    def below(self, name: str) -> Self:
        """Return the directory ``name`` in this one."""
        return replace(self, directory=f"{self.directory}/{name}")

    def path(self, key: str) -> str:
        """Return the path of ``key``."""
        return f"{self.directory}/{key}".rstrip("/")

    @property
    def other_tool(self) -> Any:
        """A client that is not ours: fsspec's own for WebHDFS."""
        return fsspec.filesystem("webhdfs", host="127.0.0.1", port=self.http_port, user="holdfast", skip_instance_cache=True)

    def make_directory(self, mode: str, name: str = "") -> None:
        """Make a directory as the superuser, with the mode (octal)."""
        self._ask("PUT", name, f"op=MKDIRS&permission={mode}")

    def give(self, owner: str) -> None:
        """Let the directory belong to ``owner``."""
        self._ask("PUT", "", f"op=SETOWNER&owner={owner}")

    @contextmanager
    def locked(self, directory: str, keys: list[str]) -> Iterator[None]:
        """Let HDFS refuse to delete what is in a directory."""
        del keys
        self._ask("PUT", directory, "op=SETPERMISSION&permission=555")
        yield
        self._ask("PUT", directory, "op=SETPERMISSION&permission=755")

    def append(self, name: str, data: bytes) -> None:
        """Append to a file, as another tool does, and the superuser."""
        self._ask("POST", name, "op=APPEND", data)

    def exchange_bytes(self, name: str, data: bytes) -> None:
        """Put other bytes into a file, which keeps its extended attributes."""
        self._ask("POST", name, "op=TRUNCATE&newlength=0")
        self.append(name, data)

    def names(self, directory: str) -> set[str]:
        """Return the names in a directory."""
        listed = self._ask("GET", directory, "op=LISTSTATUS").json()
        return {each["pathSuffix"] for each in listed["FileStatuses"]["FileStatus"]}

    def _ask(self, method: str, name: str, query: str, data: bytes = b"") -> httpx.Response:
        url = f"http://127.0.0.1:{self.http_port}/webhdfs/v1{self.path(name)}?{query}&user.name={getpass.getuser()}"
        answer = httpx.request(method, url, timeout=_START_SECONDS)
        if answer.has_redirect_location:
            answer = httpx.request(method, answer.headers["location"], content=data, timeout=_START_SECONDS)
        return answer.raise_for_status()

    def put(self, key: str, data: bytes) -> None:
        """Store a file as another tool does."""
        self.other_tool.pipe_file(self.path(key), data)

    def freeze(self) -> None:
        """Let nothing be answered until ``thaw``; connections stay open."""
        stop(self.pid)

    def thaw(self) -> None:
        """Let the servers go on."""
        os.kill(self.pid, signal.SIGCONT)


@dataclass(frozen=True)
class SecureHdfs:
    """The directory of a user at an HDFS that takes Kerberos and delegation tokens alone."""

    http_port: int
    rpc_port: int
    kdc_port: int
    directory: Path
    new_token: Callable[[], str]
    """Returns a new delegation token of the user."""

    @property
    def url(self) -> str:
        """The directory as a store's URL."""
        return f"hdfs://127.0.0.1:{self.rpc_port}/holdfast"

    @property
    def options(self) -> dict[str, str]:
        """Options for ``open_store``, without a token."""
        return {"namenodes": f"127.0.0.1:{self.http_port}"}

    def keytab(self, user: str) -> Path:
        """Return the keytab of the user ``holdfast``, or of ``stranger``, who may not see the directory."""
        return self.directory / "data" / f"{user}.keytab"


@contextmanager
def serving_hdfs(*settings: str, configuration: Path | None = None) -> Iterator[Hdfs]:
    """Run an HDFS with ``settings`` (``NAME=VALUE``) until the block ends. Raises ``NoHdfsError``.

    ``configuration`` is a directory with more of Hadoop's files.
    """
    jars = [f"{jars_of(HDFS_POM)}/*", *([] if configuration is None else [str(configuration)])]
    with running_java("MiniHdfs.java", jars, (), [*FAST, *settings]) as (process, output):
        ready = await_said(process, output, _READY)
        yield Hdfs(int(ready[1]), int(ready[2]), process.pid)


@contextmanager
def serving_secure_hdfs(*settings: str) -> Iterator[SecureHdfs]:
    """Run an HDFS with a KDC and ``settings`` (``NAME=VALUE``) until the block ends. Raises ``NoHdfsError``."""
    jars = [f"{jars_of(HDFS_POM)}/*", f"{jars_of(_MINIKDC)}/*"]
    with running_java("SecureHdfs.java", jars, _JDK_KERBEROS, [*FAST, *settings]) as (process, output):
        ready = await_said(process, output, _READY)
        kdc_port = int(await_said(process, output, _KDC)[1])
        numbers = itertools.count(1)

        def new_token() -> str:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            return await_said(process, output, _TOKEN, next(numbers))[1].decode()

        yield SecureHdfs(int(ready[2]), int(ready[1]), kdc_port, output.parent, new_token)


@contextmanager
def running_java(
    source: str, jars: list[str], options: Iterable[str], settings: list[str]
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a Java program in a directory of its own until the block ends; yield the process and the file of its output."""
    base = os.environ.get("HOLDFAST_TEST_DIRECTORY", "/var/tmp")
    with tempfile.TemporaryDirectory(prefix="holdfast-hdfs-", dir=base, ignore_cleanup_errors=True) as directory:
        output = Path(directory, "out")
        program = [*_JAVA, *options, "-cp", ":".join(jars), str(_HERE / source), f"{directory}/data"]
        command = [*DIES_WITH_US, *program, *settings]
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=file, cwd=directory)
        try:
            yield process, output
        finally:
            process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def hdfs() -> Iterator[Hdfs]:
    """An HDFS for all tests; ``below`` gives each its place."""
    need_jars(HDFS_POM)
    with serving_hdfs() as running:
        place = running.below(f"test-{uuid.uuid4().hex}")
        place.make_directory("777")
        yield place


@pytest.fixture(scope="session")
def secure_hdfs() -> Iterator[SecureHdfs]:
    """An HDFS with Kerberos for all tests. Its tokens last for six seconds, and it asks for a ticket every second."""
    need_jars(HDFS_POM, _MINIKDC)
    settings = ("dfs.namenode.delegation.token.renew-interval=6000", "hadoop.http.authentication.token.validity=1")
    with serving_secure_hdfs(*settings) as running:
        yield running


def need_jars(*poms: Path) -> None:
    """Skip the test where there are none for an HDFS."""
    try:
        for pom in poms:
            jars_of(pom)
    except NoHdfsError as problem:
        pytest.skip(str(problem))


def write_site(directory: Path, settings: Mapping[str, object], name: str = "hdfs-site.xml") -> None:
    """Write one of Hadoop's files of settings."""
    found = "".join(f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    (directory / name).write_text(f"<configuration>{found}</configuration>")


def jars_of(pom: Path) -> Path:
    """Return the directory with the jars of ``pom``, fetched now if they are not here yet. Raises ``NoHdfsError``."""
    for program in ("java", "mvn"):
        if not shutil.which(program):
            raise NoHdfsError(f"HDFS needs {program}, which is not installed")
    version = re.search("<dependency>.*?<version>(.+?)<", pom.read_text(), re.DOTALL)
    assert version is not None
    directory = cache_directory() / f"{pom.stem.removesuffix('_pom')}-{version[1]}"
    if not directory.exists():
        with locked(directory.with_suffix(".lock")):
            if not directory.exists():
                _fetch(pom, directory)
    return directory


def _fetch(pom: Path, directory: Path) -> None:
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        jars = Path(scratch, "jars")
        shutil.copy(pom, Path(scratch, "pom.xml"))
        command = ["mvn", "--batch-mode", "--strict-checksums", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoHdfsError(f"Maven could not get Hadoop's jars:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        jars.rename(directory)


def await_said(
    process: subprocess.Popen[bytes], output: Path, pattern: re.Pattern[bytes], number: int = 1
) -> re.Match[bytes]:
    """Return the match of that number in what the program has printed, once it has."""
    deadline = time.monotonic() + _START_SECONDS
    ended = os.pidfd_open(process.pid)
    try:
        while time.monotonic() < deadline:
            found = list(pattern.finditer(output.read_bytes()))
            if len(found) >= number:
                return found[number - 1]
            if select.select([ended], [], [], 0.05)[0]:
                break
    finally:
        os.close(ended)
    raise AssertionError(f"HDFS does not say {pattern.pattern!r}:\n{output.read_text(errors='replace')[-4000:]}")


if __name__ == "__main__":
    jars_of(HDFS_POM)
    jars_of(_MINIKDC)
