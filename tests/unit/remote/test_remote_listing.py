"""Listings, on every implementation: directories that names imply, pages, markers of other tools, the stores' own names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import NameNotStorableError, ObjectMissingError, RemoteError
from holdfast.remote import DirectoryInfo, ObjectInfo, RemoteStore
from tests.unit.remote import test_remote_contract as contract
from tests.unit.remote.test_remote_contract import Implementation, content, opened, put

if TYPE_CHECKING:
    from tests.support.stores.s3 import Versitygw

pytestmark = pytest.mark.slow


implementation = contract.implementation
store = contract.store

MORE_THAN_A_PAGE = 1050


def fill(store: RemoteStore, directory: str, count: int) -> list[str]:
    """Store ``count`` objects in ``directory``; return their names."""
    names = [f"part-{number:05}" for number in range(count)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: put(store, f"{directory}/{name}", b""), names))
    return names


def test_an_empty_store_has_a_root_and_nothing_else(store: RemoteStore) -> None:
    root = store.list_directory("")
    assert (root.objects, root.directories, root.exists) == ({}, frozenset(), True)
    assert list(store.list_tree("")) == []
    nothing = store.list_directory("nothing")
    assert (nothing.objects, nothing.directories, nothing.exists) == ({}, frozenset(), False)
    assert list(store.list_tree("nothing")) == []


def test_a_listing_tells_what_lies_directly_below(implementation: Implementation) -> None:
    for key in ("a", "job/metadata", "job/state/0/1.delta", "job/state/0/2.delta", "job/state/1/1.delta", "job2/x", "jo/x"):
        put(implementation.store, key)
    for node in (implementation.store, implementation.other_node):
        root = node.list_directory("")
        assert (set(root.objects), root.directories) == ({"a"}, frozenset({"job", "job2", "jo"}))
        job = node.list_directory("job")
        assert (set(job.objects), job.directories, job.exists) == ({"metadata"}, frozenset({"state"}), True)
        assert job.objects["metadata"].key == "job/metadata"
        state = node.list_directory("job/state/0")
        assert (set(state.objects), state.directories) == ({"1.delta", "2.delta"}, frozenset())


def test_a_tree_is_every_object_below_and_none_beside(store: RemoteStore) -> None:
    keys = {"a", "job/metadata", "job/state/0/1.delta", "job/state/1/1.delta", "job2/x", "jo/x", "job.x"}
    for key in keys:
        put(store, key, b"12")
    found = list(store.list_tree(""))
    assert sorted(info.key for info in found) == sorted(keys)
    assert all(info.size_bytes == 2 and info.etag == store.head(info.key).etag for info in found)
    assert {info.key for info in store.list_tree("job")} == {"job/metadata", "job/state/0/1.delta", "job/state/1/1.delta"}
    assert [info.key for info in store.list_tree("job/state/0")] == ["job/state/0/1.delta"]


def test_an_object_is_no_directory(store: RemoteStore) -> None:
    put(store, "a/b", b"")
    assert not store.list_directory("a/b").exists
    assert list(store.list_tree("a/b")) == []
    assert not store.list_directory("a/b/c").exists


def test_an_object_can_have_the_name_of_a_directory_where_the_store_has_it(implementation: Implementation) -> None:
    store = implementation.store
    put(store, "a/b", b"object")
    put(store, "c/d/e", b"below")
    if implementation.keeps_both:
        put(store, "a/b/c", b"below")
        put(store, "c/d", b"object")
        assert (content(store, "a/b"), content(store, "a/b/c"), content(store, "c/d")) == (b"object", b"below", b"object")
        for key in ("a/b", "c/d"):
            directory, name = key.split("/")
            listing = store.list_directory(directory)
            assert (set(listing.objects), listing.directories) == ({name}, frozenset({name}))
            assert store.list_directory(key).exists
            assert key not in store.list_directory(key).objects
        assert {info.key for info in store.list_tree("")} == {"a/b", "a/b/c", "c/d", "c/d/e"}
        return
    for create_only in (False, True):
        for key in ("a/b/c", "a/b/c/d", "c/d"):
            with pytest.raises(NameNotStorableError):
                put(store, key, create_only=create_only)
    for target in ("a/b/c", "c/d"):
        with pytest.raises(NameNotStorableError):
            store.copy("c/d/e", target)
    assert {info.key for info in store.list_tree("")} == {"a/b", "c/d/e"}
    assert list(store.list_tree(".holdfast")) == [], "what could not be placed is not left behind"


def test_large_directories_are_listed_whole_and_deleted_at_once(implementation: Implementation) -> None:
    store = implementation.store
    names = fill(store, "large", MORE_THAN_A_PAGE)
    put(store, "large/zz/below")
    listing = store.list_directory("large")
    assert sorted(listing.objects) == names
    assert listing.directories == {"zz"}
    assert len(list(store.list_tree("large"))) == MORE_THAN_A_PAGE + 1
    store.delete([f"large/{name}" for name in names])
    assert [info.key for info in implementation.other_node.list_tree("")] == ["large/zz/below"]


def test_no_more_is_asked_than_must_be(s3_versitygw: Versitygw) -> None:
    place = s3_versitygw.below("economy")
    store = opened(place.url, dict(place.options))
    s3_versitygw.clear_log()
    store.probe()
    assert s3_versitygw.requests() == {"ListObjectsV2": 1}
    names = fill(store, "large", MORE_THAN_A_PAGE)
    assert s3_versitygw.requests() == {"ListObjectsV2": 1, "PutObject": MORE_THAN_A_PAGE}
    s3_versitygw.clear_log()
    store.list_directory("large")
    assert s3_versitygw.requests() == {"ListObjectsV2": 2}
    put(store, "conditional", create_only=True)
    content(store, "conditional")
    store.head("conditional")
    with pytest.raises(ObjectMissingError):
        store.head("nothing")
    assert s3_versitygw.requests() == {"ListObjectsV2": 2, "PutObject": 1, "GetObject": 1, "HeadObject": 2}
    s3_versitygw.clear_log()
    store.delete([f"large/{name}" for name in names])
    assert s3_versitygw.requests() == {"DeleteObjects": 2}


def test_the_stores_own_names_are_seen_by_nobody(implementation: Implementation) -> None:
    store = implementation.store
    put(store, "a/.holdfast/b")
    store.probe()
    if implementation.put_by_other_tool:  # what a node left behind that died on its way
        implementation.put_by_other_tool(".holdfast/staged", b"half")
        assert [info.key for info in store.list_tree(".holdfast")] == [".holdfast/staged"]
    root = store.list_directory("")
    assert (root.objects, root.directories) == ({}, frozenset({"a"}))
    assert [info.key for info in store.list_tree("")] == ["a/.holdfast/b"], "only at the root"
    assert store.list_directory("a").directories == {".holdfast"}


@pytest.mark.parametrize("key", [".holdfast", ".holdfast/x", ".holdfast/x/y"])
def test_nobody_can_write_among_the_stores_own_names(store: RemoteStore, key: str) -> None:
    put(store, "a")
    for create_only in (False, True):
        with pytest.raises(NameNotStorableError):
            put(store, key, create_only=create_only)
    with pytest.raises(NameNotStorableError):
        store.copy("a", key)
    store.prune(".holdfast")
    assert [info.key for info in store.list_tree("")] == ["a"]
    put(store, "b")


def test_markers_of_other_tools_are_empty_directories(implementation: Implementation) -> None:
    store, mark = implementation.store, implementation.put_by_other_tool
    if not implementation.has_markers or mark is None:
        assert not implementation.name.startswith("s3"), "only object stores have markers"
        return
    for marker in ("empty/", "empty/deeper/", "full/"):
        mark(marker, b"")
    put(store, "full/object", b"")
    put(store, "hollow", b"")
    root = store.list_directory("")
    assert (set(root.objects), root.directories) == ({"hollow"}, frozenset({"empty", "full"}))
    empty = store.list_directory("empty")
    assert (empty.objects, empty.directories, empty.exists) == ({}, frozenset({"deeper"}), True)
    deeper = store.list_directory("empty/deeper")
    assert (deeper.objects, deeper.directories, deeper.exists) == ({}, frozenset(), True)
    full = store.list_directory("full")
    assert (set(full.objects), full.directories) == ({"object"}, frozenset())
    assert sorted(info.key for info in store.list_tree("")) == ["full/object", "hollow"]
    assert list(store.list_tree("empty")) == []
    for key in ("empty", "empty/deeper", "full"):
        with pytest.raises(ObjectMissingError):
            store.head(key)
        with pytest.raises(ObjectMissingError):
            content(store, key)


def test_a_marker_at_the_root_of_the_store_is_the_root(implementation: Implementation) -> None:
    if not implementation.has_markers or implementation.put_by_other_tool is None:
        assert not implementation.name.startswith("s3"), "only object stores have markers"
        return
    implementation.put_by_other_tool("", b"")
    root = implementation.store.list_directory("")
    assert (root.objects, root.directories, root.exists) == ({}, frozenset(), True)
    assert list(implementation.store.list_tree("")) == []


def test_a_name_that_can_be_no_key_is_told_and_harms_no_other_directory(implementation: Implementation) -> None:
    """Where the library can't step over it (object stores) the listing fails; it never leaves out the neighbours."""
    store, put_foreign = implementation.store, implementation.put_by_other_tool
    put(store, "foreign/good")
    put(store, "other/good")
    if put_foreign is None:
        return
    put_foreign("foreign/bad\tname", b"")
    if not implementation.has_markers:
        assert set(store.list_directory("foreign").objects) == {"good"}
        assert {info.key for info in store.list_tree("")} == {"foreign/good", "other/good"}
    else:
        with pytest.raises(RemoteError, match=r"bad\\tname|bad%09name|bad name") as caught:
            store.list_directory("foreign")
        assert not caught.value.transient
        assert not isinstance(caught.value, ObjectMissingError | NameNotStorableError), "lookups take those for ENOENT"
        with pytest.raises(RemoteError):
            list(store.list_tree("foreign"))
    assert set(store.list_directory("other").objects) == {"good"}
    assert content(store, "foreign/good") == b"bytes"


# --- what sweeps need -------------------------------------------------------------------------------------------------


def test_a_survey_has_every_object_and_those_directories_that_are_real(implementation: Implementation) -> None:
    store = implementation.store
    for key in ("job/chk-1/_metadata", "job/shared/a", "other/x"):
        put(store, key)
    store.delete(["job/chk-1/_metadata"])
    found = list(store.list_all("job"))
    assert [info.key for info in found if isinstance(info, ObjectInfo)] == ["job/shared/a"]
    real = {info.key for info in found if isinstance(info, DirectoryInfo)}
    assert real == ({"job/chk-1", "job/shared"} if implementation.has_directories else set())
    assert all(info.modified_ns > 0 for info in found)
    store.take_lease("leader", b"who")
    assert {info.key for info in store.list_all("")} >= {".holdfast/leader", "job/shared/a", "other/x"}


def test_the_clock_is_the_one_that_objects_are_dated_by(store: RemoteStore) -> None:
    before = store.now_ns()
    put(store, "a")
    written = store.head("a").modified_ns
    assert before <= written <= store.now_ns()
    assert list(store.list_tree("")) == [store.list_directory("").objects["a"]]


def test_one_of_many_claims_a_name(implementation: Implementation) -> None:
    nodes = [implementation.store, implementation.other_node] * max(1, implementation.racers // 2)
    if not implementation.store.capabilities.conditional_create or implementation.racers == 1:
        nodes = nodes[:1]
    with ThreadPoolExecutor(len(nodes)) as pool:
        won = list(pool.map(lambda node: node.take_lease("leader-1", b"who"), nodes))
    assert won.count(True) == 1
    assert not implementation.store.take_lease("leader-1", b"who")
    assert implementation.store.take_lease("leader-2", b"who")
    assert {info.key for info in implementation.store.list_tree(".holdfast")} == {".holdfast/leader-1", ".holdfast/leader-2"}
