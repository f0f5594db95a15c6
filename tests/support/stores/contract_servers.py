"""Servers that the contract of remote stores is held against, beside those of ``s3``: ours, and any that is given.

``HOLDFAST_TEST_STORE=NAME`` runs the contract on one implementation alone. A name that is none of ours is a store that is
there already: ``HOLDFAST_TEST_STORE_URL`` (a place that the tests may fill), ``HOLDFAST_TEST_STORE_OPTIONS`` (JSON), and
``HOLDFAST_TEST_STORE_PUT``, a shell command that stores its standard input as ``$KEY`` below the URL with another tool. What
such a tool has put there under names that Holdfast can't list is removed only by ``HOLDFAST_TEST_STORE_REMOVE``, a shell
command that removes all below ``$KEY``.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import RemoteError
from holdfast.remote import ObjectInfo, RemoteStore, open_store
from tests.support.stores.azurite import serving_azurite
from tests.support.stores.ceph import serving_ceph
from tests.support.stores.fake_gcs import serving_fake_gcs
from tests.support.stores.hdfs import serving_hdfs
from tests.support.stores.s3 import serving_versitygw
from tests.support.stores.sshd import serving_sshd

GIVEN = os.environ.get("HOLDFAST_TEST_STORE", "")


Locked = Callable[[str, list[str]], AbstractContextManager[None]]
"""A function that lets the server refuse to delete some objects: it gets their directory and their keys."""


@dataclass(frozen=True)
class StoreServer:
    """A place at a running server. ``put`` stores an object with another tool, by its key in the place of ``url``."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)
    put: Callable[[str, bytes], Any] | None = None
    pid: int = 0
    refused: dict[str, Any] = field(default_factory=dict)
    """Options in place of some of ``options``, with which the server refuses all requests. Empty: it refuses nobody."""
    has_objects: bool = True
    """True for a store of objects, where ``a`` may be beside ``a/b``; false for one of files."""

    locked: Locked | None = None

    def below(self, place: str) -> StoreServer:
        """Return the place ``place`` below this one."""
        put, lock = self.put, self.locked
        planted = None if put is None else lambda key, data: put(f"{place}/{key}", data)
        locked = (
            None
            if lock is None
            else lambda directory, keys: lock(f"{place}/{directory}", [f"{place}/{key}" for key in keys])
        )
        return replace(self, url=f"{self.url}/{place}", put=planted, locked=locked)


def immutable_files(root: Path) -> Locked:
    """Return the function for a server whose objects are files below ``root``."""

    @contextmanager
    def locked(_: str, keys: list[str]) -> Iterator[None]:
        paths = [root / key for key in keys]
        subprocess.run(["chattr", "+i", *paths], check=True)
        try:
            yield
        finally:
            subprocess.run(["chattr", "-i", *paths], check=True)

    return locked


@contextmanager
def _azurite() -> Iterator[StoreServer]:
    with serving_azurite() as server:
        client = server.client()

        def put(key: str, data: bytes) -> None:
            client.upload_blob(key, data, overwrite=True)

        @contextmanager
        def locked(_: str, keys: list[str]) -> Iterator[None]:
            leases = [client.get_blob_client(key).acquire_lease() for key in keys]
            yield
            for lease in leases:
                lease.release()

        yield StoreServer(server.url, server.options, put, server.pid, {"account_key": "b3RoZXI="}, locked=locked)


@contextmanager
def _sshd() -> Iterator[StoreServer]:
    with serving_sshd() as server:

        def put(key: str, data: bytes) -> None:
            (server.directory / key).parent.mkdir(parents=True, exist_ok=True)
            (server.directory / key).write_bytes(data)

        refused = {"key_filename": str(server.other_key)}
        locked = immutable_files(server.directory)
        yield StoreServer(server.url, server.options, put, server.pid, refused, has_objects=False, locked=locked)


@contextmanager
def _ceph() -> Iterator[StoreServer]:
    with serving_ceph() as server:
        client = server.client()

        def put(key: str, data: bytes) -> None:
            client.put_object(Bucket=server.bucket, Key=key, Body=data)

        refused = {"secret_access_key": "other"}
        yield StoreServer(server.url, dict(server.options), put, server.pid, refused, locked=server.locked)


@contextmanager
def _fake_gcs() -> Iterator[StoreServer]:
    with serving_fake_gcs() as server:
        yield StoreServer(server.url, server.options, server.put, server.pid)


@contextmanager
def serving_s3() -> Iterator[StoreServer]:
    """Run a versitygw until the block ends."""
    with serving_versitygw() as server:
        yield StoreServer(server.url, server.options, pid=server.pid, refused={"secret_access_key": "other"})


@contextmanager
def serving_hdfs_store() -> Iterator[StoreServer]:
    """Run an HDFS until the block ends."""
    with serving_hdfs() as server:
        place = server.below("holdfast")
        place.make_directory("700")
        place.give("holdfast")
        yield StoreServer(place.url, place.options, place.put, place.pid, {"user": "stranger"}, has_objects=False)


@contextmanager
def _given() -> Iterator[StoreServer]:
    command = os.environ.get("HOLDFAST_TEST_STORE_PUT")

    def put(key: str, data: bytes) -> None:
        assert command is not None
        subprocess.run(["sh", "-c", command], input=data, env={**os.environ, "KEY": key}, check=True)

    options = json.loads(os.environ.get("HOLDFAST_TEST_STORE_OPTIONS", "{}"))
    has_objects = os.environ["HOLDFAST_TEST_STORE_URL"].partition("://")[0] in ("s3", "s3a", "gs", "az", "abfs", "abfss")
    place = StoreServer(
        os.environ["HOLDFAST_TEST_STORE_URL"], options, put if command else None, has_objects=has_objects
    ).below(f"holdfast-test-{uuid.uuid4().hex}")
    try:
        yield place
    finally:
        if remove := os.environ.get("HOLDFAST_TEST_STORE_REMOVE"):
            directory = place.url.rpartition("/")[2]
            subprocess.run(["sh", "-c", remove], env={**os.environ, "KEY": directory}, check=True)
        else:
            _empty(open_store(place.url, options, os.environ, request_timeout_seconds=60, connect_timeout_seconds=5))


def _empty(store: RemoteStore) -> None:
    """Remove what can be listed; print which places have something else in them."""
    for directory in store.list_directory("").directories:
        try:
            store.delete([info.key for info in store.list_all(directory) if isinstance(info, ObjectInfo)])
        except RemoteError as problem:
            print(f"{store.url}/{directory} is not empty: {problem}")


CONTRACT_SERVERS: dict[str, Callable[[], AbstractContextManager[StoreServer]]] = {
    "azurite": _azurite,
    "sshd": _sshd,
    "s3-ceph": _ceph,
    "gs-fake": _fake_gcs,
}
"""The servers that the contract is held against."""
ALL_SERVERS = {**CONTRACT_SERVERS, "s3-versitygw": serving_s3, "hdfs": serving_hdfs_store}
"""These, and those that run for other tests too."""


def chosen(ours: list[str]) -> list[str]:
    """Return the implementations to test: ``ours``, or the one that ``HOLDFAST_TEST_STORE`` names."""
    return [GIVEN] if GIVEN else ours


@pytest.fixture(scope="session")
def store_server() -> Iterator[Callable[[str], StoreServer]]:
    """A function that returns a new place at one of ``CONTRACT_SERVERS``, which runs from its first use on, or at the given
    store.
    """
    running: dict[str, StoreServer] = {}
    missing: dict[str, str] = {}
    with ExitStack() as servers:

        def place(name: str) -> StoreServer:
            if name not in running and name not in missing:
                try:
                    running[name] = servers.enter_context(CONTRACT_SERVERS.get(name, _given)())
                except (OSError, subprocess.CalledProcessError) as problem:
                    said = getattr(problem, "stderr", None) or b""
                    missing[name] = f"{name} can't be had: {problem} {said.decode(errors='replace')[-300:]}"
            if name in missing:
                pytest.skip(missing[name])
            return running[name].below(uuid.uuid4().hex)

        yield place
