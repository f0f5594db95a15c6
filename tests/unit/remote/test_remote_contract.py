"""Every remote store does what ``remote/contract.py`` says: one suite, run on all of them.

Here: objects. ``test_remote_listing``, ``test_remote_keys`` and ``test_remote_large_create`` run on the same
implementations. What a store does not promise (``capabilities``) is tested for the weaker behaviour that the contract
states instead.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import obstore
import pytest

from holdfast.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteError,
    RemoteUnavailableError,
)
from holdfast.remote import ObjectInfo, RemoteStore, UploadSource, open_store
from tests.support.stores.contract_servers import CONTRACT_SERVERS, GIVEN, Locked, StoreServer, chosen, immutable_files
from tests.support.stores.ftp_server import PASSWORD, serving_ftp
from tests.support.stores.s3 import Versitygw

if TYPE_CHECKING:
    from tests.support.stores.hdfs import Hdfs
    from tests.support.stores.s3 import S3Server

pytestmark = pytest.mark.slow


_OURS = ["file", "memory", "s3-moto", "s3-versitygw", "fsspec-file", "fsspec-memory", "ftp-file", "hdfs", *CONTRACT_SERVERS]
IMPLEMENTATIONS = chosen(_OURS)


@dataclass(frozen=True)
class Implementation:
    """A store without objects, and what a test must know to look at it from the outside."""

    name: str
    store: RemoteStore
    other_node: RemoteStore
    """The same store as another node opens it."""
    keeps_both: bool
    """Whether there may be an object ``a`` beside ``a/b``, as S3 itself has it."""
    has_markers: bool = False
    """Whether another tool may store an object ``a/``, which stands for an empty directory."""
    is_of_files: bool = False
    """Say whether a server of ours, or the given one, has files in directories."""
    racers: int = 16
    """How many may race for one name. moto looks whether there is an object, and then writes, without a lock: one."""
    put_by_other_tool: Callable[[str, bytes], Any] | None = None
    locked: Locked | None = None
    """Lets the server refuse to delete some objects, where a test can have that."""

    @property
    def has_directories(self) -> bool:
        """Whether directories are real ones, with times of their own."""
        return self.is_of_files or self.name == "hdfs" or "file" in self.name

    @property
    def replaces_at_once(self) -> bool:
        """Whether a version is replaced in one step. The others look, delete and create."""
        return self.store.capabilities.conditional_create and not self.name.endswith(("-moto", "file", "gs-fake"))


Record = Callable[[str, object], None]
"""pytest's ``record_property``: what a store promises goes into the report, for ``tests.support.stores.store_table``."""


REQUEST_TIMEOUT_SECONDS = 60 if os.environ.get("HOLDFAST_TEST_LARGE") else 20
"""The patience of a test, or of a daemon where it has a large file to copy."""


def opened(url: str, options: dict[str, Any] | None = None, environment: dict[str, str] | None = None) -> RemoteStore:
    """Open a store that waits so long for an answer, and two seconds for a connection."""
    return open_store(
        url,
        options or {},
        environment or {},
        request_timeout_seconds=REQUEST_TIMEOUT_SECONDS,
        connect_timeout_seconds=2,
    )


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, workspace: Path) -> Iterator[Implementation]:
    """Each of the implementations."""
    name: str = request.param
    if name in CONTRACT_SERVERS or name not in _OURS:
        if name == "sshd" and not GIVEN and request.module.__name__ != __name__:
            pytest.skip("an SSH connection takes long: HOLDFAST_TEST_STORE=sshd runs the whole contract")
        place: StoreServer = request.getfixturevalue("store_server")(name)
        store, other_node = (opened(place.url, place.options) for _ in range(2))
        yield Implementation(
            name,
            store,
            other_node,
            place.has_objects,
            has_markers=place.has_objects,
            is_of_files=not place.has_objects,
            put_by_other_tool=place.put,
            locked=place.locked,
        )
    elif name.startswith("s3-"):
        server: S3Server = request.getfixturevalue(name.replace("-", "_")).below(uuid.uuid4().hex)
        store, other_node = (opened(server.url, dict(server.options)) for _ in range(2))

        def put(key: str, data: bytes) -> None:
            server.client().put_object(Bucket=server.bucket, Key=server.key(key), Body=data)

        racers = 1 if name == "s3-moto" else 16
        yield Implementation(
            name,
            store,
            other_node,
            name != "s3-versitygw",
            has_markers=True,
            racers=racers,
            put_by_other_tool=put,
            locked=immutable_files(server.directory) if isinstance(server, Versitygw) else None,
        )
    elif name == "memory":
        store = opened("memory://")
        yield Implementation(name, store, store, keeps_both=True)
    elif name == "fsspec-memory":
        url = f"fsspec+memory://{uuid.uuid4().hex}"
        yield Implementation(name, opened(url), opened(url), keeps_both=False)
        files = fsspec.filesystem("memory")
        if files.exists(url.removeprefix("fsspec+")):
            files.rm(url.removeprefix("fsspec+"), recursive=True)
    elif name == "hdfs":
        hdfs: Hdfs = request.getfixturevalue("hdfs").below(uuid.uuid4().hex)
        store, other_node = (opened(hdfs.url, hdfs.options) for _ in range(2))
        yield Implementation(name, store, other_node, keeps_both=False, put_by_other_tool=hdfs.put, locked=hdfs.locked)
    elif name == "ftp-file":
        with serving_ftp(workspace) as ftp:
            store, other_node = (
                opened(f"{ftp.url}/objects", {"username": "holdfast", "password": PASSWORD}) for _ in range(2)
            )
            yield Implementation(name, store, other_node, keeps_both=False)
    else:
        root = workspace / "objects"
        root.mkdir()

        def put_file(key: str, data: bytes) -> None:
            (root / key).parent.mkdir(parents=True, exist_ok=True)
            (root / key).write_bytes(data)

        url = f"{name.replace('-', '+')}://{root}"
        yield Implementation(name, opened(url), opened(url), keeps_both=False, put_by_other_tool=put_file)


@pytest.fixture
def store(implementation: Implementation) -> RemoteStore:
    """A store without objects."""
    return implementation.store


def put(
    store: RemoteStore,
    key: str,
    data: bytes = b"bytes",
    metadata: dict[str, str] | None = None,
    *,
    create_only: bool = False,
) -> ObjectInfo:
    """Store ``data``."""
    return store.write(key, UploadSource(len(data), data=data), metadata or {}, create_only=create_only)


def content(store: RemoteStore, key: str, start: int = 0, end: int = 2**40, etag: str = "") -> bytes:
    """Return the bytes of a range."""
    body = store.read(key, start, end, etag)
    assert body.start == start
    return b"".join(bytes(buffer) for buffer in body.buffers)


def replace(store: RemoteStore, version: str, data: bytes, path: Path | None = None) -> ObjectInfo:
    """Store ``data`` as ``a`` in place of a version, from memory or by way of a file."""
    if path is None:
        return store.replace("a", version, UploadSource(len(data), data=data), {})
    path.write_bytes(data)
    return store.replace("a", version, UploadSource(len(data), path=path), {})


@pytest.mark.parametrize("from_file", [False, True])
def test_a_version_is_replaced_once(implementation: Implementation, workspace: Path, *, from_file: bool) -> None:
    file = workspace / "file" if from_file else None
    first = put(implementation.store, "a", b"first")
    second = replace(implementation.store, first.etag, b"the second", file)
    assert content(implementation.other_node, "a", 0, 100, second.etag) == b"the second"
    with pytest.raises(ObjectExistsError):
        replace(implementation.other_node, first.etag, b"a late second", file)
    assert content(implementation.store, "a") == b"the second"


@pytest.mark.parametrize("from_file", [False, True])
def test_what_is_to_be_replaced_may_be_gone(implementation: Implementation, workspace: Path, *, from_file: bool) -> None:
    file = workspace / "file" if from_file else None
    first = put(implementation.store, "a", b"first")
    implementation.other_node.delete(["a"])
    replace(implementation.store, first.etag, b"the second", file)
    assert content(implementation.other_node, "a") == b"the second"
    with pytest.raises(ObjectExistsError):
        replace(implementation.other_node, first.etag, b"a late second", file)


def test_a_store_that_can_not_replace_looks_deletes_and_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened("memory://")
    first, put_as = put(store, "a", b"first"), obstore.put

    def without_if_match(*arguments: Any, mode: Any, **options: Any) -> Any:
        if isinstance(mode, dict):
            raise obstore.exceptions.NotSupportedError("A header you provided implies functionality that is not implemented")
        return put_as(*arguments, mode=mode, **options)

    monkeypatch.setattr(obstore, "put", without_if_match)
    replace(store, first.etag, b"the second")
    assert content(store, "a") == b"the second"
    with pytest.raises(ObjectExistsError):
        replace(store, first.etag, b"a late second")


def test_an_etag_is_one_with_and_without_its_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Azure's listings."""
    store = opened("memory://")
    written, list_as = put(store, "a/b", b"bytes"), obstore.list_with_delimiter

    def without_quotes(*arguments: Any) -> Any:
        result = list_as(*arguments)
        for meta in result["objects"]:
            meta["e_tag"] = (meta["e_tag"] or "").strip('"')
        return result

    monkeypatch.setattr(obstore, "list_with_delimiter", without_quotes)
    assert store.list_directory("a").objects["b"].etag == written.etag == store.head("a/b").etag


def test_many_may_make_the_first_objects_of_a_directory_at_once(implementation: Implementation) -> None:
    gate = threading.Barrier(8)

    def write(number: int) -> None:
        gate.wait()
        for depth in range(1, 4):
            put(implementation.store, f"{'d/' * depth}{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert len({info.key for info in implementation.other_node.list_tree("d")}) == 3 * 8


def test_of_many_who_replace_one_version_at_once_one_wins(implementation: Implementation, record_property: Record) -> None:
    record_property("a version is replaced once", implementation.replaces_at_once)
    first = put(implementation.store, "a", b"first")
    gate = threading.Barrier(implementation.racers)

    def race(number: int) -> bool:
        gate.wait()
        while True:
            try:
                replace(implementation.store, first.etag, b"%d" % number)
            except ObjectExistsError:
                return False
            except RemoteUnavailableError:
                continue
            return True

    with ThreadPoolExecutor(implementation.racers) as pool:
        won = list(pool.map(race, range(implementation.racers)))
    assert any(won)
    if implementation.replaces_at_once:
        assert won.count(True) == 1
        assert content(implementation.store, "a") == b"%d" % won.index(True)


@pytest.mark.parametrize("size_bytes", [1, 1000, 3 * 2**20 + 1])
def test_an_object_is_read_as_it_was_written(implementation: Implementation, size_bytes: int) -> None:
    data = os.urandom(size_bytes)
    info = put(implementation.store, "a/b", data)
    assert (info.key, info.size_bytes) == ("a/b", size_bytes)
    assert content(implementation.store, "a/b", 0, size_bytes, info.etag) == data
    assert content(implementation.other_node, "a/b", 0, size_bytes, info.etag) == data


def test_an_empty_object_is_an_object(store: RemoteStore) -> None:
    info = put(store, "empty", b"", {"holdfast-digest": "x"})
    assert store.head("empty").size_bytes == 0
    assert content(store, "empty", 0, 0, info.etag) == b""
    assert store.read("empty", 0, 0, "").info.metadata == ({"holdfast-digest": "x"} if store.capabilities.metadata else {})
    assert store.list_directory("").objects["empty"].size_bytes == 0


@pytest.mark.parametrize(("start", "end"), [(0, 10), (0, 1), (3, 7), (9, 10), (0, 11), (5, 2**40), (0, 0), (4, 4), (10, 10)])
def test_any_range_can_be_read(store: RemoteStore, start: int, end: int) -> None:
    data = b"0123456789"
    etag = put(store, "digits", data).etag
    body = store.read("digits", start, end, etag)
    assert b"".join(body.buffers) == data[start:end]
    assert (body.start, body.info.size_bytes) == (start, 10), "the info describes the whole object"


@pytest.mark.parametrize("start", [10, 11, 2**33])
def test_a_start_beyond_the_end_says_that_the_object_is_another(store: RemoteStore, start: int) -> None:
    put(store, "digits", b"0123456789")
    with pytest.raises(ObjectChangedError):
        content(store, "digits", start, start + 5)


def test_what_is_not_there_is_missing(store: RemoteStore) -> None:
    put(store, "directory/object")
    for key in ("nothing", "directory", "directory/nothing", "directory/object2", "nothing/at/all"):
        with pytest.raises(ObjectMissingError):
            store.head(key)
        with pytest.raises(ObjectMissingError):
            content(store, key)
        with pytest.raises(ObjectMissingError):
            content(store, key, 0, 0)
        with pytest.raises(ObjectMissingError):
            store.copy(key, "target")
    assert list(store.list_directory("").objects) == []


def test_what_is_at_a_key_is_found(implementation: Implementation) -> None:
    store = implementation.store
    put(store, "a/b", b"12345", {})
    assert store.find("a/b") == store.head("a/b")
    assert [store.find(key) for key in ("a", "a/c", "b")] == [True, False, False]


def test_listing_head_and_read_tell_the_same_version(implementation: Implementation) -> None:
    store = implementation.store
    written = put(store, "a/b", b"12345", {"holdfast-digest": "x"})
    head = store.head("a/b")
    listed = store.list_directory("a").objects["b"]
    (walked,) = store.list_tree("")
    read = store.read("a/b", 0, 5, "").info
    nothing_read = store.read("a/b", 0, 0, "").info
    other = implementation.other_node.head("a/b")
    infos = [head, listed, walked, read, nothing_read, other]
    assert {(info.key, info.size_bytes, info.etag, info.modified_ns) for info in infos} == {
        ("a/b", 5, written.etag, head.modified_ns)
    }
    assert written.modified_ns in (0, head.modified_ns)


def test_the_time_is_the_stores_now(store: RemoteStore) -> None:
    before = time.time_ns()
    put(store, "a")
    after = time.time_ns()
    assert before - 2 * 10**9 <= store.head("a").modified_ns <= after + 2 * 10**9


def test_metadata_comes_back_whole(store: RemoteStore, record_property: Record) -> None:
    record_property("digests are kept", store.capabilities.metadata)
    metadata = {"holdfast-digest": "xxh3-128:00ff", "holdfast-chunks": "A" * 1500 + "+/=", "holdfast-put": "a b;c,d%20"}
    put(store, "a", b"12345", metadata)
    expected = metadata if store.capabilities.metadata else {}
    assert store.head("a").metadata == expected
    assert store.read("a", 1, 2, "").info.metadata == expected
    put(store, "a", b"12345")
    assert store.head("a").metadata == {}, "it belongs to the version, not to the name"


def test_create_only_leaves_an_existing_object_alone(implementation: Implementation) -> None:
    store = implementation.store
    first = put(store, "a", b"first", {"holdfast-digest": "1"}, create_only=True)
    for node in (store, implementation.other_node):
        with pytest.raises(ObjectExistsError):
            put(node, "a", b"second", {"holdfast-digest": "2"}, create_only=True)
    assert content(store, "a", etag=first.etag) == b"first"
    store.delete(["a"])
    put(store, "a", b"third", create_only=True)
    assert content(store, "a") == b"third"


@pytest.mark.parametrize("number", range(int(os.environ.get("HOLDFAST_TEST_RACES", "1"))))
def test_of_many_creations_of_one_name_one_wins(
    implementation: Implementation, number: int, record_property: Record
) -> None:
    record_property("a name is created once", implementation.store.capabilities.conditional_create)
    nodes, key = [implementation.store, implementation.other_node], f"race/prize-{number}"
    start = threading.Barrier(implementation.racers)

    def create(number: int) -> bytes | None:
        data = b"%d" % number * 1000
        start.wait()
        try:
            put(nodes[number % 2], key, data, create_only=True)
        except ObjectExistsError:
            return None
        return data

    with ThreadPoolExecutor(implementation.racers) as pool:
        winners = [data for data in pool.map(create, range(implementation.racers)) if data is not None]
    assert content(nodes[0], key) in winners
    if implementation.store.capabilities.conditional_create:
        assert len(winners) == 1
    with pytest.raises(ObjectExistsError):
        put(nodes[0], key, create_only=True)


def test_overwriting_makes_another_version(store: RemoteStore, record_property: Record) -> None:
    record_property("each change is another version", store.capabilities.versions)
    versions = [b"1", b"2", b"33", b"4444"] if store.capabilities.versions else [b"1", b"22", b"333"]
    etags = [put(store, "a", data).etag for data in versions]
    assert len(set(etags)) == len(versions)
    assert store.head("a").etag == etags[-1]
    for etag in etags[:-1]:
        with pytest.raises(ObjectChangedError):
            content(store, "a", 0, 1, etag)
        with pytest.raises(ObjectChangedError):
            content(store, "a", 0, 0, etag)
    assert content(store, "a", etag=etags[-1]) == versions[-1]


def test_readers_see_the_old_object_or_the_whole_new_one(implementation: Implementation, record_property: Record) -> None:
    record_property("readers see the old or the new object", implementation.store.capabilities.atomic)
    versions = [character * 300_000 for character in (b"a", b"b")]
    store = implementation.store
    put(store, "flag", versions[0])
    done = threading.Event()

    def overwrite() -> None:
        try:
            for number in range(20):
                put(implementation.other_node, "flag", versions[number % 2])
        finally:
            done.set()

    def read_always() -> int:
        count = 0
        while not done.is_set() or count == 0:
            try:
                assert content(store, "flag") in versions
                count += 1
            except (ObjectMissingError, ObjectChangedError):
                assert not store.capabilities.atomic
            except RemoteUnavailableError:  # no answer is no wrong answer; but only these trip over their own feet (500)
                assert implementation.name in ("s3-moto", "s3-ceph") or implementation.name not in _OURS
        return count

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read_always) for _ in range(2)]
        pool.submit(overwrite).result()
        assert all(reader.result() for reader in readers)


def test_a_copy_is_an_object_of_its_own(store: RemoteStore) -> None:
    put(store, "source", b"copied", {"holdfast-digest": "x"})
    put(store, "deep/target", b"to be replaced")
    info = store.copy("source", "deep/target")
    assert (info.key, info.size_bytes) == ("deep/target", 6)
    assert info == store.head("deep/target")
    assert info.metadata == ({"holdfast-digest": "x"} if store.capabilities.metadata else {})
    put(store, "source", b"another", {"holdfast-digest": "y"})
    assert content(store, "deep/target", etag=info.etag) == b"copied"
    store.copy("source", "deep/target")
    store.copy("source", "deep/target")
    store.delete(["source"])
    assert content(store, "deep/target") == b"another"


def test_deleting_takes_what_is_there_and_minds_nothing_else(store: RemoteStore) -> None:
    for key in ("a", "b/c", "b/d", "kept"):
        put(store, key)
    store.delete(["a", "nothing", "b/c", "b", "a/below", "b/d", "x" * 300, "new\nline"])
    assert [info.key for info in store.list_tree("")] == ["kept"]
    store.delete(["a"])
    store.delete([])
    assert content(store, "kept") == b"bytes"


def test_pruning_removes_empty_directories_only(implementation: Implementation) -> None:
    store = implementation.store
    put(store, "a/b/c")
    for prefix in ("a", "a/b", "nothing", "a/b/c", ""):
        store.prune(prefix)
    assert content(store, "a/b/c") == b"bytes"
    store.delete(["a/b/c"])
    store.prune("a/b")
    store.prune("a")
    assert store.list_directory("").directories == frozenset()
    assert not store.list_directory("a").exists
    put(store, "a/b/c", b"again")
    assert content(implementation.other_node, "a/b/c") == b"again"


def test_a_probe_leaves_no_trace(implementation: Implementation) -> None:
    implementation.other_node.probe()
    implementation.store.probe()
    assert implementation.store.list_directory("").objects == {}
    assert list(implementation.store.list_tree("")) == []


def test_many_threads_can_use_a_store(store: RemoteStore) -> None:
    def work(number: int) -> bytes:
        put(store, f"threads/{number}", b"%d" % number)
        store.list_directory("threads")
        return content(store, f"threads/{number}")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(64))) == [b"%d" % number for number in range(64)]
    assert len(store.list_directory("threads").objects) == 64


def test_the_errors_of_a_store_are_remote_errors(store: RemoteStore) -> None:
    put(store, "a")
    for attempt in (lambda: store.head("b"), lambda: put(store, "a", create_only=True), lambda: content(store, "a", 9, 10)):
        with pytest.raises(RemoteError):
            attempt()
