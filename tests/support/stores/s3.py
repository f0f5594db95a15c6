"""S3 servers for tests, each in a process of its own that ends with the session, whatever happens to the tests.

Two fixtures of session scope, each an ``S3Server`` with an empty bucket of its own; ``below`` gives every test its place,
as the fixtures ``place`` and ``proxy`` have one:

- ``s3_moto``: moto's server. Knows no wrong credentials and keeps ``a`` beside ``a/b``, as S3 does.
- ``s3_versitygw``: versitygw over a directory, which checks signatures and counts requests. See
  ``versitygw`` for where the program comes from.
"""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import boto3
import pytest

from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.servers import directory_of_server, served_by
from tests.support.stores.versitygw import versitygw_binary

_BUCKET = "bucket"
_OPERATION = re.compile(r" s3_(\w+) ")
_FETCHED = re.compile(r" s3_GetObject (\S+) \S+ 20[06] ")


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
    pid: int = 0

    @property
    def directory(self) -> Path:
        """The directory whose files are the objects of this place."""
        return self.access_log.parent / "root" / self.bucket / self.prefix

    def requests(self) -> Counter[str]:
        """Return how many requests of each kind (``PutObject``, ``ListObjectsV2``, …) came since ``clear_log``."""
        lines = self.access_log.read_text(errors="replace").splitlines()
        return Counter(match[1] for match in map(_OPERATION.search, lines) if match)

    def fetched(self) -> list[str]:
        """Return the keys of the objects that were fetched since ``clear_log``, once for each request."""
        return _FETCHED.findall(self.access_log.read_text(errors="replace"))

    def clear_log(self) -> None:
        """Count from here. The server opens its log to append, so the file can be emptied under it."""
        os.truncate(self.access_log, 0)


@pytest.fixture(scope="session")
def s3_moto() -> Iterator[S3Server]:
    """An S3 in memory."""

    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

    with directory_of_server() as directory, served_by(command, directory / "moto.out") as (port, _):
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
    with directory_of_server(base) as directory:
        root, access_log = directory / "root", directory / "access.log"
        (root / _BUCKET).mkdir(parents=True)

        def command(port: int) -> list[str]:
            options = ["--quiet", "--keep-alive", "--port", f"127.0.0.1:{port}", "--access-log", str(access_log)]
            keys = ["--access", access_key_id, "--secret", secret_access_key]
            return [str(binary), *options, *keys, "posix", str(root)]

        with served_by(command, directory / "versitygw.out") as (port, pid):
            yield Versitygw(
                f"http://127.0.0.1:{port}", _BUCKET, "", access_key_id, secret_access_key, access_log=access_log, pid=pid
            )
