"""Files that go in parts, on every implementation; and what becomes of a conditional creation when answers are lost."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import ObjectExistsError, RemoteUnavailableError
from holdfast.remote import ObjectInfo, RemoteStore, UploadSource
from tests.support.stores.fault_proxy import FaultProxy
from tests.unit.remote import test_remote_contract as contract
from tests.unit.remote.test_remote_contract import Implementation, Record, content, opened, put

if TYPE_CHECKING:
    from tests.support.stores.s3 import Versitygw

pytestmark = pytest.mark.slow


implementation = contract.implementation
store = contract.store

SIZE_BYTES = 17 * 2**20  # two parts
METADATA = {"holdfast-digest": "xxh3-128:00", "holdfast-put": "1"}
TRIES = 3


@pytest.fixture(scope="session")
def file(disk: Path) -> Path:
    """A file of more than one part."""
    path = disk / "large"
    path.write_bytes(os.urandom(SIZE_BYTES))
    return path


def staged(store: RemoteStore) -> list[str]:
    """Return what a creation has left below ``.holdfast/``, but for the two objects that stay."""
    left = {info.key for info in store.list_tree(".holdfast")}
    return sorted(left - {".holdfast/condition-source", ".holdfast/condition-taken"})


def send(store: RemoteStore, key: str, path: Path, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
    """Store a file."""
    return store.write(key, UploadSource(path.stat().st_size, path=path), metadata, create_only=create_only)


@pytest.mark.parametrize("create_only", [False, True])
def test_a_large_file_arrives_whole_with_its_metadata(implementation: Implementation, file: Path, create_only: bool) -> None:
    store = implementation.store
    info = send(store, "large", file, METADATA, create_only=create_only)
    assert (info.key, info.size_bytes) == ("large", SIZE_BYTES)
    assert content(implementation.other_node, "large", 0, SIZE_BYTES, info.etag) == file.read_bytes()
    assert content(store, "large", SIZE_BYTES - 3, SIZE_BYTES + 3, info.etag) == file.read_bytes()[-3:]
    assert store.head("large").metadata == (METADATA if store.capabilities.metadata else {})
    assert store.head("large").etag == info.etag
    assert [info.key for info in store.list_tree("")] == ["large"]
    assert staged(store) == []


@pytest.mark.parametrize("create_only", [False, True])
@pytest.mark.parametrize("size_bytes", [0, 1])
def test_a_small_file_may_be_a_path_too(store: RemoteStore, workspace: Path, size_bytes: int, create_only: bool) -> None:
    path = workspace / "small"
    path.write_bytes(b"x" * size_bytes)
    info = send(store, "small", path, {}, create_only=create_only)
    assert content(store, "small", 0, size_bytes, info.etag) == b"x" * size_bytes


@pytest.mark.parametrize("create_only", [False, True])
def test_an_open_file_without_a_name_can_be_sent(store: RemoteStore, workspace: Path, create_only: bool) -> None:
    """As the uploader does it: the name may be gone or another file's by now."""
    path = workspace / "unlinked"
    path.write_bytes(b"still here")
    with path.open("rb") as opened_file:
        path.unlink()
        send(store, "a", Path(f"/proc/self/fd/{opened_file.fileno()}"), METADATA, create_only=create_only)
        assert opened_file.tell() == 0
    assert content(store, "a") == b"still here"


def test_a_large_creation_leaves_an_existing_object_alone(implementation: Implementation, file: Path) -> None:
    store = implementation.store
    put(store, "with", b"1", {"holdfast-digest": "x"})
    put(store, "without", b"2")
    for key in ("with", "without"):
        with pytest.raises(ObjectExistsError):
            send(store, key, file, METADATA, create_only=True)
    assert (content(store, "with"), content(store, "without")) == (b"1", b"2")
    assert staged(store) == []
    info = send(store, "with", file, METADATA, create_only=False)
    assert content(store, "with", etag=info.etag) == file.read_bytes()


@pytest.mark.parametrize("same_bytes", [False, True])
def test_of_many_large_creations_one_wins(
    implementation: Implementation, file: Path, workspace: Path, same_bytes: bool, record_property: Record
) -> None:
    record_property("a large file is created once", implementation.store.capabilities.conditional_create)
    nodes = [implementation.store, implementation.other_node]
    other = workspace / "other"
    other.write_bytes(file.read_bytes() if same_bytes else bytes(SIZE_BYTES))
    racers = min(4, implementation.racers)
    start = threading.Barrier(racers)

    def create(number: int) -> int | None:
        start.wait()
        try:
            send(nodes[number % 2], "prize", (file, other)[number % 2], {"holdfast-put": f"{number}"}, create_only=True)
        except ObjectExistsError:
            return None
        return number

    with ThreadPoolExecutor(racers) as pool:
        winners = [number for number in pool.map(create, range(racers)) if number is not None]
    assert content(nodes[0], "prize") in [(file, other)[number % 2].read_bytes() for number in winners]
    if implementation.store.capabilities.conditional_create:
        assert len(winners) == 1
        assert nodes[0].head("prize").metadata == {"holdfast-put": f"{winners[0]}"}
    assert staged(nodes[0]) == []


@pytest.fixture
def behind(place: Versitygw, proxy: FaultProxy, workspace: Path) -> RemoteStore:
    """A store behind the proxy that has been used."""
    store = opened(place.url, dict(place.through(proxy.endpoint).options))
    try_condition(store, workspace)
    return store


def try_condition(store: RemoteStore, workspace: Path) -> None:
    """Create something from a file: the first time, the store tries whether the server keeps a copy's condition."""
    path = workspace / "first"
    path.write_bytes(b"first")
    send(store, "first", path, {}, create_only=True)
    store.delete(["first"])


def test_parts_are_what_a_large_file_costs(place: Versitygw, file: Path, workspace: Path) -> None:
    store = opened(place.url, dict(place.options))
    try_condition(store, workspace)
    place.clear_log()
    send(store, "large", file, METADATA, create_only=False)
    upload = {"CreateMultipartUpload": 1, "UploadPart": 2, "CompleteMultipartUpload": 1}
    assert place.requests() == upload
    place.clear_log()
    send(store, "created", file, METADATA, create_only=True)
    conditional_copy = {"CreateMultipartUpload": 2, "UploadPartCopy": 1, "CompleteMultipartUpload": 2}
    assert place.requests() == {**upload, **conditional_copy, "HeadObject": 3, "CopyObject": 1, "DeleteObjects": 1}
    place.clear_log()
    with pytest.raises(ObjectExistsError):
        send(store, "created", file, METADATA, create_only=True)
    assert place.requests() == {"HeadObject": 1}, "what can't win is not sent"


@pytest.mark.parametrize("lost", [("PUT", "partNumber=2"), ("POST", "uploadId=")], ids=["a part", "the end"])
@pytest.mark.parametrize("create_only", [False, True])
def test_an_upload_that_fails_leaves_no_parts(
    lost: tuple[str, str], create_only: bool, place: Versitygw, behind: RemoteStore, proxy: FaultProxy, file: Path
) -> None:
    method, matching = lost
    proxy.answer(503, method=method, matching=matching)
    place.clear_log()
    with pytest.raises(RemoteUnavailableError):
        send(behind, "large", file, METADATA, create_only=create_only)
    assert place.requests()["AbortMultipartUpload"] == 1
    assert "Uploads" not in place.client().list_multipart_uploads(Bucket=place.bucket, Prefix=place.key(""))


Step = tuple[str, str, int]
STEPS: dict[str, Step] = {
    "looking": ("HEAD", "/large", 0),
    "staging begins": ("POST", "?uploads", 0),
    "a part": ("PUT", "partNumber=2", 0),
    "staging ends": ("POST", "uploadId=", 0),
    "the conditional copy begins": ("POST", "/large?uploads", 0),
    "its part": ("PUT", "/large?partNumber=1", 0),
    "the conditional copy ends": ("POST", "/large?uploadId=", 0),
    "looking at it": ("HEAD", "/large", 1),
    "the copy of the metadata": ("PUT", "/large", 1),
    "looking again": ("HEAD", "/large", 2),
    "clearing up": ("POST", "?delete", 0),
}


@pytest.mark.parametrize("carried_out", [True, False], ids=["answer lost", "refused"])
@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_a_large_creation_survives_the_loss_of_any_answer(
    step: Step, carried_out: bool, place: Versitygw, behind: RemoteStore, proxy: FaultProxy, file: Path
) -> None:
    method, matching, after = step
    proxy.let_pass(times=after, method=method, matching=matching)
    if carried_out:
        proxy.lose_answers(method=method, matching=matching)
    else:
        proxy.answer(503, method=method, matching=matching)
    for _ in range(TRIES):
        try:
            info = send(behind, "large", file, METADATA, create_only=True)
            break
        except RemoteUnavailableError:
            continue
        except ObjectExistsError:  # the uploader looks whether the token in the metadata is its own
            info = behind.head("large")
            break
    assert proxy.faults_left() == 0
    assert info == behind.head("large")
    assert info.metadata == METADATA
    assert content(behind, "large") == file.read_bytes()
    with pytest.raises(ObjectExistsError):
        send(behind, "large", file, {"holdfast-put": "2"}, create_only=True)
    uploads = place.client().list_multipart_uploads(Bucket=place.bucket, Prefix=place.key("large")).get("Uploads") or []
    assert len(uploads) <= 1


def test_a_creation_in_doubt_does_not_take_what_another_node_made(
    place: Versitygw, behind: RemoteStore, proxy: FaultProxy, file: Path, workspace: Path
) -> None:
    other_file = workspace / "other"
    other_file.write_bytes(bytes(SIZE_BYTES))
    proxy.answer(503, method="POST", matching="/large?uploadId=")
    with pytest.raises(RemoteUnavailableError):
        send(behind, "large", file, METADATA, create_only=True)
    other = opened(place.url, dict(place.options))
    send(other, "large", other_file, {}, create_only=True)
    with pytest.raises(ObjectExistsError):
        send(behind, "large", file, METADATA, create_only=True)
    assert content(other, "large") == other_file.read_bytes()
    assert staged(other) == []
