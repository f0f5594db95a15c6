"""A store divided for many tasks gives what one listing gives, whatever its shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.remote import RemoteStore, UploadSource
from holdfast.remote.file_store import FileStore
from holdfast_spark.datasource import division
from holdfast_spark.datasource.division import Unit, divided, listed
from holdfast_spark.stores import StoreAddress
from tests.support.stores.s3 import S3Server

pytestmark = pytest.mark.slow


def put(store: RemoteStore, *keys: str) -> None:
    for key in keys:
        store.write(key, UploadSource(1, data=b"x"), {}, create_only=False)


def assert_whole(store: RemoteStore, prefix: str, wanted: int) -> list[Unit]:
    units = divided(store, prefix, wanted)
    found = Counter((type(info), info.key) for unit in units for info in listed(store, unit))
    assert found == Counter((type(info), info.key) for info in store.list_all(prefix))
    return units


@pytest.fixture(autouse=True, scope="module")
def _three_objects_are_many() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(division, "_SMALL", 2)
        yield


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join), max_size=30, unique=True),
    wanted=st.integers(1, 12),
    prefix=st.sampled_from(["", "a", "a/b", "nothing/here"]),
)
def test_the_units_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str], wanted: int, prefix: str
) -> None:
    store = FileStore(tmp_path_factory.mktemp("store"))
    put(store, *(f"{key}.x" for key in keys))
    assert_whole(store, prefix, wanted)


def test_the_units_are_the_whole_on_s3(s3_moto: S3Server) -> None:
    server = s3_moto.below("division")
    store = StoreAddress(server.url, server.options).open()
    put(store, *(f"job-{job}/{kind}/{name}" for job in range(3) for kind in ("shared", "chk-1") for name in "abc"), "top")
    store.write_private("staged", b"x", create_only=False)
    server.client().put_object(Bucket=server.bucket, Key=server.key("job-1/marker/"), Body=b"")
    units = assert_whole(store, "", 6)
    assert len(units) >= 6
    assert_whole(store, "job-1", 3)


def test_a_store_is_divided_into_as_many_units_as_are_wanted_and_small_or_flat_ones_are_not(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    put(store, *(f"{job}/{name}" for job in range(10) for name in "abcd"))
    assert len(divided(store, "", 5)) == 12, "ten directories, the root's own objects, and what is the store's"
    assert divided(store, "3", 5) == [Unit("3", is_deep=True)], "a flat directory"
    assert divided(store, "", 1) == [Unit("", is_deep=True)]


def test_very_many_subdirectories_are_listed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "_MOST_SUBDIRECTORIES", 4)
    store = FileStore(tmp_path)
    put(store, *(f"{job}/{name}" for job in range(10) for name in "abcd"))
    assert divided(store, "", 5) == [Unit("", is_deep=True)]
