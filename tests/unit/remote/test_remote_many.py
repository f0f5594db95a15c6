"""Many objects and one large one, on every implementation: listings of all pages, bulk deletions, an upload in many parts.

``HOLDFAST_TEST_LARGE=1`` makes it 3,000 deletions, 10,000 objects and 1 GiB, minutes for each store; else there are a few.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from holdfast.digest import Hasher
from holdfast.errors import HoldfastError
from holdfast.remote import ObjectInfo, RemoteStore, UploadSource, obstore_deletions
from tests.support.stores.contract_servers import immutable_files
from tests.support.stores.s3 import Versitygw
from tests.unit.remote import test_remote_contract as contract
from tests.unit.remote.test_remote_contract import Implementation, Record, put
from tests.unit.remote.test_remote_large_create import staged

implementation = contract.implementation
store = contract.store

IS_LARGE = bool(os.environ.get("HOLDFAST_TEST_LARGE"))
LISTED = 10_000 if IS_LARGE else 150
DELETED = 3_000 if IS_LARGE else 150
LARGE_BYTES = 2**30 if IS_LARGE else 40 * 2**20
_MISSING = 100
_THREADS = 16
_BLOCK_BYTES = 2**20

pytestmark = [pytest.mark.slow, *([pytest.mark.timeout(3600)] if IS_LARGE else [])]


def put_all(store: RemoteStore, keys: list[str]) -> None:
    """Store an object of each name."""
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda key: put(store, key), keys))


def keys_in(store: RemoteStore, prefix: str = "") -> set[str]:
    return {info.key for info in store.list_tree(prefix)}


def test_all_objects_are_listed_and_removed(implementation: Implementation, record_property: Record) -> None:
    record_property(f"{LISTED:,} objects", True)
    store = implementation.store
    keys = [f"few/{number % 3}/{number}" for number in range(50)] + [f"many/{number:05}" for number in range(LISTED)]
    put_all(store, keys)
    assert set(implementation.other_node.list_directory("many").objects) == {f"{number:05}" for number in range(LISTED)}
    listed = [info.key for info in store.list_all("") if isinstance(info, ObjectInfo)]
    assert sorted(listed) == sorted(keys)
    assert keys_in(store, "many") == set(keys[50:])
    store.delete(keys)
    assert keys_in(implementation.other_node) == set()


def test_a_bulk_deletion_minds_neither_missing_names_nor_those_that_are_refused(
    implementation: Implementation, record_property: Record
) -> None:
    record_property(f"{DELETED:,} deleted, some missing, some refused", True)
    store = implementation.store
    keys = [f"bulk/{number:04}" for number in range(DELETED)]
    step = max(DELETED // _MISSING, 2)
    missing = set(keys[1::step])
    locked = ["locked/a", "locked/b", "locked/c"] if implementation.locked is not None else []
    put_all(store, [*sorted(set(keys) - missing), *locked, "kept"])
    third = DELETED // 3
    wanted = [*keys[:third], *locked[:1], "x" * 2000, *keys[third : 2 * third], *locked[1:], "new\nline", *keys[2 * third :]]
    with nullcontext() if implementation.locked is None else implementation.locked("locked", locked):
        if locked:
            with pytest.raises(HoldfastError):
                store.delete(wanted)
        else:
            store.delete(wanted)
        assert keys_in(implementation.other_node) == {*locked, "kept"}
    store.delete(wanted)
    assert keys_in(implementation.other_node) == {"kept"}


def test_an_object_that_can_not_be_deleted_keeps_no_other_request_from_being_sent(
    place: Versitygw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_deletions, "_S3_BATCH", 2)
    store = contract.opened(place.url, dict(place.options))
    keys = list("abcde")
    put_all(store, keys)
    place.clear_log()
    with immutable_files(place.directory)("", ["a"]), pytest.raises(HoldfastError):
        store.delete(keys)
    assert keys_in(store) == {"a"}
    assert place.requests()["DeleteObjects"] == 3


def test_a_file_that_no_library_may_read_by_itself_comes_back_as_it_was_sent(
    implementation: Implementation, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On XFS its lock may be held, and a library would wait for that."""
    content = os.urandom(17 << 20)
    (workspace / "large").write_bytes(content)
    source = UploadSource(len(content), path=workspace / "large")
    monkeypatch.setattr("holdfast.remote.contract.locks_reads", lambda _: True)
    for create_only in (True, False):
        info = implementation.store.write("large", source, {"holdfast-digest": "x"}, create_only=create_only)
        assert b"".join(implementation.other_node.read("large", 0, len(content), info.etag).buffers) == content
    assert staged(implementation.store) == []
    implementation.store.delete(["large"])


def test_a_large_file_comes_back_as_it_was_sent(
    implementation: Implementation, workspace: Path, record_property: Record
) -> None:
    record_property(f"{LARGE_BYTES >> 20} MiB", True)
    path, hasher = workspace / "large", Hasher(LARGE_BYTES)
    with path.open("wb") as file:
        for _ in range(LARGE_BYTES // _BLOCK_BYTES):
            block = os.urandom(_BLOCK_BYTES)
            hasher.update(block)
            file.write(block)
    store = implementation.store
    info = store.write("large", UploadSource(LARGE_BYTES, path=path), {"holdfast-digest": "x"}, create_only=True)
    path.unlink()
    came = Hasher(LARGE_BYTES)
    for buffer in implementation.other_node.read("large", 0, LARGE_BYTES, info.etag).buffers:
        came.update(buffer)
    assert came.finish() == hasher.finish()
    assert keys_in(store) == {"large"}
    assert staged(store) == []
    store.delete(["large"])
