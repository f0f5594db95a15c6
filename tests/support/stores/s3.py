"""S3 servers for tests, each in a process of its own that ends with the session, whatever happens to the tests.

Three fixtures of session scope, each an ``S3Server`` with an empty bucket of its own; ``below`` gives every test its place,
as the fixtures ``place`` and ``proxy`` have one:

- ``s3_moto``: moto's server. Knows no wrong credentials and keeps ``a`` beside ``a/b``, as S3 does.
- ``s3_versitygw``: versitygw over a directory, which checks signatures and counts requests. See
  ``versitygw`` for where the program comes from.
- ``s3_given``: the store that ``HOLDFAST_TEST_S3`` names, as the endpoint's URL with the bucket and, if wanted, a prefix:
  ``https://s3.eu-central-1.amazonaws.com/bucket/prefix``. The bucket must exist; credentials come from
  ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY`` and, where needed, ``AWS_SESSION_TOKEN`` and ``AWS_REGION``.
"""

from __future__ import annotations

import os
import random
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import boto3
import pytest

from tests.support.processes.children import DIES_WITH_US
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.versitygw import versitygw_binary

GIVEN = "HOLDFAST_TEST_S3"

_BUCKET = "bucket"
_START_SECONDS = 60.0
_ATTEMPT_SECONDS = 0.02
_OPERATION = re.compile(r" s3_(\w+) ")
_PORTS = range(10_000, 2**16)


@dataclass(frozen=True)
class S3Server:
    """A place in a bucket, and what a client needs to know to reach it."""

    endpoint: str
    bucket: str
    prefix: str
    access_key_id: str
    secret_access_key: str
    region: str = "us-east-1"
    session_token: str = ""

    @property
    def url(self) -> str:
        """The place as a store's URL."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def options(self) -> dict[str, str]:
        """Options for ``open_store``, credentials included."""
        options = {
            "endpoint": self.endpoint,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "region": self.region,
        }
        return {**options, "session_token": self.session_token} if self.session_token else options

    @property
    def environment(self) -> dict[str, str]:
        """The same as environment variables, for a daemon in a process of its own."""
        names = {"endpoint": "AWS_ENDPOINT_URL"}
        return {names.get(option, f"AWS_{option.upper()}"): value for option, value in self.options.items()}

    def below(self, name: str) -> Self:
        """Return the place ``name`` below this one."""
        return replace(self, prefix=f"{self.prefix}/{name}".strip("/"))

    def through(self, endpoint: str) -> Self:
        """Return the same place as it is reached through a proxy."""
        return replace(self, endpoint=endpoint)

    def key(self, name: str) -> str:
        """Return the key of the object ``name`` in the bucket."""
        return f"{self.prefix}/{name}".lstrip("/")

    def client(self) -> Any:
        """Return a boto3 client: another tool that works on the same objects."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            aws_session_token=self.session_token or None,
            region_name=self.region,
        )


@dataclass(frozen=True)
class Versitygw(S3Server):
    """A versitygw. It writes its access log before it answers: what a client has heard of has been counted."""

    access_log: Path = Path()

    @property
    def directory(self) -> Path:
        """The directory whose files are the objects of this place."""
        return self.access_log.parent / "root" / self.bucket / self.prefix

    def requests(self) -> Counter[str]:
        """Return how many requests of each kind (``PutObject``, ``ListObjectsV2``, …) came since ``clear_log``."""
        lines = self.access_log.read_text(errors="replace").splitlines()
        return Counter(match[1] for match in map(_OPERATION.search, lines) if match)

    def clear_log(self) -> None:
        """Count from here. The server opens its log to append, so the file can be emptied under it."""
        os.truncate(self.access_log, 0)


@pytest.fixture(scope="session")
def s3_moto() -> Iterator[S3Server]:
    """An S3 in memory."""

    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

    with _directory() as directory, _process(command, directory / "moto.out") as port:
        server = S3Server(f"http://127.0.0.1:{port}", _BUCKET, "", "KEY", "SECRET")
        server.client().create_bucket(Bucket=_BUCKET)
        yield server


@pytest.fixture(scope="session")
def s3_versitygw() -> Iterator[Versitygw]:
    """An S3 over a directory."""
    with serving_versitygw() as server:
        yield server


@pytest.fixture
def place(s3_versitygw: Versitygw) -> S3Server:
    """A place of the test's own on a server that checks signatures and counts requests."""
    return s3_versitygw.below(uuid.uuid4().hex)


@pytest.fixture
def proxy(place: S3Server) -> Iterator[FaultProxy]:
    """A proxy to ``place``."""
    with FaultProxy(place.endpoint) as running:
        yield running


@contextmanager
def serving_versitygw(base: Path | None = None) -> Iterator[Versitygw]:
    """Run a versitygw over a directory of its own until the block ends. Raises ``BuildError`` when there is none to run.

    The directory is made below ``base``, by default where tests have their files.
    """
    binary = versitygw_binary()
    access_key_id, secret_access_key = "HOLDFASTKEY", uuid.uuid4().hex
    with _directory(base) as directory:
        root, access_log = directory / "root", directory / "access.log"
        (root / _BUCKET).mkdir(parents=True)

        def command(port: int) -> list[str]:
            options = ["--quiet", "--keep-alive", "--port", f"127.0.0.1:{port}", "--access-log", str(access_log)]
            keys = ["--access", access_key_id, "--secret", secret_access_key]
            return [str(binary), *options, *keys, "posix", str(root)]

        with _process(command, directory / "versitygw.out") as port:
            yield Versitygw(f"http://127.0.0.1:{port}", _BUCKET, "", access_key_id, secret_access_key, access_log=access_log)


@pytest.fixture(scope="session")
def s3_given() -> Iterator[S3Server]:
    """The S3 that ``HOLDFAST_TEST_S3`` names; what the tests leave there is removed."""
    parts = urlsplit(os.environ[GIVEN])
    bucket, _, prefix = parts.path.strip("/").partition("/")
    server = S3Server(
        f"{parts.scheme}://{parts.netloc}",
        bucket,
        prefix,
        os.environ["AWS_ACCESS_KEY_ID"],
        os.environ["AWS_SECRET_ACCESS_KEY"],
        os.environ.get("AWS_REGION", "us-east-1"),
        os.environ.get("AWS_SESSION_TOKEN", ""),
    ).below(f"holdfast-test-{uuid.uuid4().hex}")
    yield server
    client = server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{server.prefix}/"):
        for found in page.get("Contents", []):
            client.delete_object(Bucket=bucket, Key=found["Key"])


@contextmanager
def _directory(base: Path | None = None) -> Iterator[Path]:
    """A directory on a real disk: versitygw keeps metadata in extended attributes, which not every tmpfs has."""
    base = base or Path(os.environ.get("HOLDFAST_TEST_DIRECTORY", "/var/tmp"))
    with tempfile.TemporaryDirectory(prefix="holdfast-s3-", dir=base) as directory:
        yield Path(directory)


@contextmanager
def _process(command: Callable[[int], list[str]], output: Path) -> Iterator[int]:
    """Run ``command(port)`` until the block ends; yield the port once it is answered there."""
    port = free_port()
    with output.open("wb") as file:
        process = subprocess.Popen([*DIES_WITH_US, *command(port)], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        _await_answer(process, port, output)
        yield port
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """Return a TCP port of the loopback that nobody has, and that nobody is given before it is used.

    It is none of those that the kernel gives to whoever connects or asks for any, where there are others. A name in the
    kernel, which this process has to its end, keeps it from other tests.
    """
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [port for port in _PORTS if not first <= port <= last] or list(_PORTS)
    for port in random.sample(ports, len(ports)):
        name, listener = socket.socket(socket.AF_UNIX), socket.socket()
        try:
            name.bind(f"\0holdfast-test-port-{port}")
            listener.bind(("127.0.0.1", port))
        except OSError:
            name.close()
        else:
            name.detach()
            return port
        finally:
            listener.close()
    raise AssertionError(f"all ports of {len(ports)} are taken")


def _await_answer(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    ended = os.pidfd_open(process.pid)
    try:
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                if select.select([ended], [], [], _ATTEMPT_SECONDS)[0]:
                    break
            else:
                return
    finally:
        os.close(ended)
    raise AssertionError(f"{process.args!r} does not answer on port {port}:\n{output.read_text(errors='replace')}")
