"""Large creations where an S3 server does not keep the condition of a copy: one conditional PUT of the whole file."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from holdfast.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote import RemoteStore, UploadSource
from holdfast.remote.large_create import LargeCreate
from holdfast.remote.obstore_errors import answered
from holdfast.remote.s3_signed import SignedRequests
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server, Versitygw
from tests.unit.remote.test_remote_contract import content, opened, put

SIZE_BYTES = 17 * 2**20
METADATA = {"holdfast-digest": "xxh3-128:00", "holdfast-put": "1"}


@pytest.fixture(autouse=True)
def without_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server count as one that does not keep it."""
    monkeypatch.setattr(LargeCreate, "_is_condition_kept", lambda _: False)


@pytest.fixture
def store(place: S3Server) -> RemoteStore:
    return opened(place.url, dict(place.options))


@pytest.fixture
def file(workspace: Path) -> Path:
    path = workspace / "large"
    path.write_bytes(os.urandom(SIZE_BYTES))
    return path


def create(store: RemoteStore, path: Path, key: str = "large", size_bytes: int = SIZE_BYTES) -> str:
    """Create an object from a file; return its etag."""
    return store.write(key, UploadSource(size_bytes, path=path), METADATA, create_only=True).etag


def test_one_request_brings_the_file_with_its_metadata(place: Versitygw, store: RemoteStore, file: Path) -> None:
    store.probe()
    place.clear_log()
    etag = create(store, file, "d/a b+ü")
    assert place.requests() == {"HeadObject": 1, "PutObject": 1}
    assert content(store, "d/a b+ü", 0, SIZE_BYTES, etag) == file.read_bytes()
    assert store.head("d/a b+ü").metadata == METADATA
    assert [info.key for info in store.list_tree("")] == ["d/a b+ü"]


def test_an_empty_file_is_created_too(store: RemoteStore, workspace: Path) -> None:
    path = workspace / "empty"
    path.touch()
    create(store, path, size_bytes=0)
    assert content(store, "large", 0, 0) == b""


def test_an_object_that_is_there_is_left_alone(store: RemoteStore, file: Path) -> None:
    put(store, "large", b"first")
    with pytest.raises(ObjectExistsError):
        create(store, file)
    assert content(store, "large") == b"first"


@pytest.mark.parametrize("status", [301, 304, 307, 308])
def test_an_answer_that_sends_elsewhere_stores_nothing(
    store: RemoteStore, file: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = httpx.Response(status, headers={"location": "http://127.0.0.1:9/large", "etag": '"none"'})
    monkeypatch.setattr(SignedRequests, "put", lambda *_: answer)
    with pytest.raises(RemoteUnavailableError, match=f"PUT large: status {status}"):
        create(store, file)


def test_of_many_one_wins(place: S3Server, file: Path) -> None:
    stores = [opened(place.url, dict(place.options)) for _ in range(4)]
    start = threading.Barrier(len(stores))

    def race(store: RemoteStore) -> bool:
        start.wait()
        try:
            create(store, file)
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(len(stores)) as pool:
        assert list(pool.map(race, stores)).count(True) == 1
    assert content(stores[0], "large", 0, SIZE_BYTES) == file.read_bytes()


def is_absent(store: RemoteStore) -> bool:
    try:
        store.head("large")
    except ObjectMissingError:
        return True
    return False


def test_a_file_that_has_changed_since_its_digest_is_not_stored(store: RemoteStore, file: Path) -> None:
    source = UploadSource(SIZE_BYTES, path=file, is_unchanged=lambda: False)
    with pytest.raises(ObjectChangedError):
        store.write("large", source, METADATA, create_only=True)
    assert is_absent(store)


def test_a_file_that_changes_while_it_is_sent_is_not_stored(store: RemoteStore, file: Path) -> None:
    def change() -> bool:
        file.write_bytes(bytes(SIZE_BYTES))
        return True

    with pytest.raises(RemoteUnavailableError):
        store.write("large", UploadSource(SIZE_BYTES, path=file, is_unchanged=change), METADATA, create_only=True)
    assert is_absent(store)


def test_a_file_that_is_cut_while_it_is_sent_is_not_stored(store: RemoteStore, file: Path) -> None:
    def cut() -> bool:
        os.truncate(file, SIZE_BYTES // 2)
        return True

    with pytest.raises(ObjectChangedError):
        store.write("large", UploadSource(SIZE_BYTES, path=file, is_unchanged=cut), METADATA, create_only=True)
    assert is_absent(store)


def test_a_lost_answer_and_a_refusal_are_passing_and_the_next_try_shows_what_became_of_it(
    place: S3Server, proxy: FaultProxy, file: Path
) -> None:
    store = opened(place.url, dict(place.through(proxy.endpoint).options))
    proxy.answer(503, method="PUT", matching="/large")
    with pytest.raises(RemoteUnavailableError):
        create(store, file)
    assert is_absent(store)
    proxy.lose_answers(method="PUT", matching="/large")
    with pytest.raises(RemoteUnavailableError):
        create(store, file)
    with pytest.raises(ObjectExistsError):
        create(store, file)
    assert store.head("large").metadata == METADATA, "by which the uploader knows its own"


@pytest.mark.parametrize(
    ("status", "body", "kind", "of_store"),
    [
        (403, "<Error><Code>AccessDenied</Code></Error>", RemoteRefusedError, False),
        (403, "<Error><Code>SignatureDoesNotMatch</Code></Error>", RemoteRefusedError, True),
        (400, "<Error><Code>XAmzContentSHA256Mismatch</Code></Error>", RemoteUnavailableError, True),
        (409, "<Error><Code>ConditionalRequestConflict</Code></Error>", RemoteUnavailableError, True),
        (503, "<Error><Code>SlowDown</Code></Error>", RemoteUnavailableError, True),
        (500, "<Error><Code>UnknownError</Code></Error>", RemoteUnavailableError, False),
        (502, "<html>a proxy's page</html>", RemoteUnavailableError, True),
        (400, "", RemoteRefusedError, False),
    ],
)
def test_the_errors_of_a_request_that_is_our_own(status: int, body: str, kind: type[RemoteError], *, of_store: bool) -> None:
    problem = answered("PUT a", status, body, [])
    assert isinstance(problem, kind)
    assert problem.of_store is of_store
    assert str(problem).startswith("PUT a: ")
