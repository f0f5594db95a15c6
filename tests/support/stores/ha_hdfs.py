"""An HDFS with two namenodes (HA) for tests, one of them active; a test says which, and ends and starts them."""

from __future__ import annotations

import itertools
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from tests.support.stores.hdfs import FAST, HDFS_POM, await_said, jars_of, need_jars, running_java, write_site

_NAMENODES = re.compile(rb"^NAMENODES((?: \d+)+)$", re.MULTILINE)
_DONE = re.compile(rb"^DONE .*$", re.MULTILINE)
_NAME = "minidfs-ns"
_FIRST_SECONDS = 300.0
"""The longest the first request to a namenode may take, which loads most of its web server."""


@dataclass(frozen=True)
class HaHdfs:
    """A directory of a running HDFS, at or below ``/holdfast``, which belongs to the user ``holdfast``."""

    http_ports: tuple[int, ...]
    config_dir: Path
    """Hadoop's files, which name all namenodes in their order."""

    tell: Callable[[str], None]
    """Has a command of ``HaHdfs.java`` carried out, as in ``active 1``. From any thread."""

    directory: str = "holdfast"

    @property
    def url(self) -> str:
        """The directory as a store's URL."""
        return f"hdfs://{_NAME}/{self.directory}"

    @property
    def options(self) -> dict[str, str]:
        """Options for ``open_store``, by which all namenodes are known."""
        return {"config_dir": str(self.config_dir), "user": "holdfast"}

    def listed_by(self, number: int) -> set[str]:
        """Return the names that one namenode lists, whatever the other ones know."""
        url = f"http://127.0.0.1:{self.http_ports[number]}/webhdfs/v1/{self.directory}?op=LISTSTATUS&user.name=holdfast"
        listed = httpx.get(url, timeout=60).raise_for_status().json()
        return {each["pathSuffix"] for each in listed["FileStatuses"]["FileStatus"]}

    def beginning_with(self, number: int) -> dict[str, str]:
        """Return options for ``open_store`` by which that namenode is the first to be asked."""
        ports = [*self.http_ports[number:], *self.http_ports[:number]]
        return {"namenodes": ", ".join(f"127.0.0.1:{port}" for port in ports), "user": "holdfast"}


@contextmanager
def serving_ha_hdfs(*settings: str) -> Iterator[HaHdfs]:
    """Run an HDFS with two namenodes and ``settings`` (``NAME=VALUE``) until the block ends; the first namenode is active.

    Raises ``NoHdfsError``.
    """
    given = ["2", *FAST, f"fs.defaultFS=hdfs://{_NAME}", *settings]
    with running_java("HaHdfs.java", [f"{jars_of(HDFS_POM)}/*"], (), given) as (process, output):
        ports = tuple(int(port) for port in await_said(process, output, _NAMENODES)[1].split())
        lock, numbers = threading.Lock(), itertools.count(1)

        def tell(command: str) -> None:
            assert process.stdin is not None
            with lock:
                process.stdin.write(f"{command}\n".encode())
                process.stdin.flush()
                await_said(process, output, _DONE, next(numbers))

        write_site(output.parent, _site(ports))
        for query in ("op=MKDIRS&permission=700", "op=SETOWNER&owner=holdfast"):
            url = f"http://127.0.0.1:{ports[0]}/webhdfs/v1/holdfast?{query}&user.name=root"
            httpx.put(url, timeout=_FIRST_SECONDS).raise_for_status()
        for port in ports:
            httpx.get(f"http://127.0.0.1:{port}/webhdfs/v1/?op=GETFILESTATUS", timeout=_FIRST_SECONDS)
        yield HaHdfs(ports, output.parent, tell)


@pytest.fixture(scope="session")
def _running_ha_hdfs() -> Iterator[HaHdfs]:
    need_jars(HDFS_POM)
    with serving_ha_hdfs("dfs.ha.tail-edits.period=1h") as running:
        yield running


@pytest.fixture
def ha_hdfs(_running_ha_hdfs: HaHdfs) -> HaHdfs:
    """An HDFS with an active namenode and one on standby, which learns of a change only when it becomes active."""
    _running_ha_hdfs.tell("only 0")
    return replace(_running_ha_hdfs, directory=f"holdfast/{uuid.uuid4().hex}")


def _site(ports: tuple[int, ...]) -> dict[str, str]:
    names = {f"dfs.ha.namenodes.{_NAME}": ",".join(f"nn{each}" for each in range(len(ports)))}
    return names | {f"dfs.namenode.http-address.{_NAME}.nn{each}": f"127.0.0.1:{port}" for each, port in enumerate(ports)}
