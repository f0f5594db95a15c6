"""A store that is slow, fails, lies or is gone: what ``RemoteAccess`` and ``Uploader`` make of it behind a fault proxy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import trio
from trio.testing import MockClock

from holdfast.errors import ObjectExistsError, ObjectMissingError, RemoteError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote import RemoteStore
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer.remotes import Remote
from holdfast.transfer.store_requests import RemoteAccess
from holdfast.transfer.upload import HashingThreads, Uploader
from tests.support.stores.fault_proxy import FaultProxy
from tests.unit.remote.test_remote_contract import content, opened, put

if TYPE_CHECKING:
    from tests.support.stores.s3 import Versitygw

pytestmark = pytest.mark.slow


DEADLINE_SECONDS = 100.0
LARGE_BYTES = 17 * 2**20
SINGLE_PUT_LIMIT_BYTES = 16 * 2**20


class Behind:
    """What a node has of a store that it reaches through the proxy. Made inside ``trio.run``."""

    def __init__(self, store: RemoteStore) -> None:
        self.store = store
        self.events = EventLog(lambda: 0.0)
        self.counters = Counters()
        self.access = RemoteAccess(
            "checkpoints",
            store,
            deadline_seconds=DEADLINE_SECONDS,
            parallel=4,
            events=self.events,
            counters=self.counters,
            clock=lambda: 0.0,
        )
        self.uploader = Uploader(SINGLE_PUT_LIMIT_BYTES, "node", HashingThreads(), self.counters)

    async def send(self, path: Path, key: str, *, create_only: bool) -> str:
        """Upload a file; return its etag."""
        remote = cast("Remote", SimpleNamespace(name="checkpoints", access=self.access))
        fd = os.open(path, os.O_RDONLY)
        try:
            info, _ = await self.uploader.send(fd, remote, key, create_only=create_only)
        finally:
            os.close(fd)
        return info.etag

    def kinds(self) -> list[str]:
        """Return the kinds of the events so far."""
        return [event.kind for event in self.events.since(0)]


@pytest.fixture
def direct(place: Versitygw) -> RemoteStore:
    """The store as another node reaches it, without the proxy."""
    return opened(place.url, dict(place.options))


@pytest.fixture
def behind(place: Versitygw, proxy: FaultProxy) -> Behind:
    """A node behind the proxy. Its pauses cost no time where a test takes ``autojump_clock``, which must be by itself."""
    return Behind(opened(place.url, dict(place.through(proxy.endpoint).options)))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file that goes in one request."""
    path = tmp_path / "small"
    path.write_bytes(b"small")
    return path


@pytest.fixture
def large(workspace: Path) -> Path:
    """A file that goes in parts."""
    path = workspace / "large"
    path.write_bytes(os.urandom(LARGE_BYTES))
    return path


def same(store: RemoteStore, key: str, path: Path) -> bool:
    """Say whether an object is what a file is."""
    return content(store, key) == path.read_bytes()


async def test_what_passes_is_tried_again_and_told_once(
    behind: Behind, proxy: FaultProxy, direct: RemoteStore, autojump_clock: MockClock
) -> None:
    put(direct, "a")
    proxy.answer(503, times=3)
    assert (await behind.access.head("a")).size_bytes == 5
    assert len(proxy.requests()) == 4
    assert behind.kinds() == ["remote-down", "remote-up"]
    assert behind.access.health.up
    await behind.access.head("a")
    assert behind.kinds() == ["remote-down", "remote-up"]


async def test_what_does_not_pass_ends_at_the_deadline(behind: Behind, proxy: FaultProxy, autojump_clock: MockClock) -> None:
    proxy.down()
    began = trio.current_time()
    with pytest.raises(RemoteUnavailableError, match="gave up after 100 s"):
        await behind.access.list_directory("")
    assert DEADLINE_SECONDS / 2 < trio.current_time() - began <= DEADLINE_SECONDS
    assert behind.counters.requests["LIST"] > 10
    assert behind.kinds() == ["remote-down"]
    assert not behind.access.health.up


async def test_pauses_do_not_grow_beyond_all_numbers(behind: Behind) -> None:
    retry = behind.access.retry()
    for _ in range(10_000):
        begins = retry.next_try(RemoteUnavailableError("down"))
    assert begins < trio.current_time() + DEADLINE_SECONDS


async def test_a_store_that_comes_back_is_used_again(
    behind: Behind, proxy: FaultProxy, small: Path, direct: RemoteStore, autojump_clock: MockClock
) -> None:
    proxy.down()

    async def repair() -> None:
        await behind.events.wait_beyond(0)
        proxy.up()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(repair)
        etag = await behind.send(small, "a", create_only=True)
    assert content(direct, "a", etag=etag) == b"small"
    assert behind.kinds() == ["remote-down", "remote-up"]


async def test_an_answer_is_final_even_if_it_is_a_refusal(
    behind: Behind, proxy: FaultProxy, autojump_clock: MockClock
) -> None:
    proxy.answer(403, body=b"<Error><Code>AccessDenied</Code></Error>")
    with pytest.raises(RemoteRefusedError):
        await behind.access.list_directory("")
    with pytest.raises(ObjectMissingError):
        await behind.access.read(content, behind.store, "missing")
    assert len(proxy.requests()) == 2
    assert behind.kinds() == ["remote-down", "remote-up"], "missing is an answer"


async def test_asking_once_is_asking_once(behind: Behind, proxy: FaultProxy, autojump_clock: MockClock) -> None:
    proxy.answer(503, times=2)
    with pytest.raises(RemoteUnavailableError):
        await behind.access.probe()
    with pytest.raises(RemoteUnavailableError):
        await behind.access.list_directory("", retry=False)
    assert len(proxy.requests()) == 2


@pytest.mark.parametrize("create_only", [True, False])
async def test_a_lost_answer_does_not_turn_success_into_failure(
    behind: Behind, proxy: FaultProxy, direct: RemoteStore, small: Path, create_only: bool, autojump_clock: MockClock
) -> None:
    proxy.lose_answers(times=2, method="PUT")
    etag = await behind.send(small, "a", create_only=create_only)
    assert direct.head("a").etag == etag
    assert content(direct, "a") == b"small"
    assert len(proxy.requests("PUT")) == 3
    assert len(proxy.requests("HEAD")) == (1 if create_only else 0)
    assert behind.counters.objects_uploaded == 1


async def test_a_conditional_put_in_doubt_does_not_take_anothers_object_for_its_own(
    behind: Behind, proxy: FaultProxy, direct: RemoteStore, small: Path, autojump_clock: MockClock
) -> None:
    proxy.lose_answers(method="PUT")
    put(direct, "a", b"small", {"holdfast-put": "another"}, create_only=True)
    with pytest.raises(ObjectExistsError):
        await behind.send(small, "a", create_only=True)
    assert direct.head("a").metadata == {"holdfast-put": "another"}


@pytest.mark.parametrize("step", [("POST", "/a?uploadId="), ("HEAD", "/a"), ("PUT", "/a"), ("PUT", "partNumber=2")])
async def test_a_lost_answer_to_a_creation_in_parts_does_not_turn_success_into_failure(
    behind: Behind,
    proxy: FaultProxy,
    direct: RemoteStore,
    large: Path,
    step: tuple[str, str],
    autojump_clock: MockClock,
) -> None:
    method, matching = step
    proxy.lose_answers(method=method, matching=matching)
    etag = await behind.send(large, "a", create_only=True)
    assert proxy.faults_left() == 0
    assert direct.head("a").etag == etag
    assert same(direct, "a", large)
    assert {"holdfast-digest", "holdfast-chunks", "holdfast-put"} <= direct.head("a").metadata.keys()


@pytest.mark.parametrize("fault", [FaultProxy.truncate_answers, FaultProxy.shorten_answers, FaultProxy.lose_answers])
async def test_a_body_that_ends_early_is_asked_for_again(
    behind: Behind, proxy: FaultProxy, direct: RemoteStore, fault: Callable[..., None], autojump_clock: MockClock
) -> None:
    data = os.urandom(3 * 2**20)
    put(direct, "a", data)
    fault(proxy, times=2, method="GET")
    assert await behind.access.read(content, behind.store, "a", 0, len(data)) == data
    assert len(proxy.requests("GET")) == 3
    fault(proxy, times=10_000, method="GET")
    with pytest.raises(RemoteUnavailableError, match="gave up"):
        await behind.access.read(content, behind.store, "a", 0, len(data))


async def test_a_deletion_whose_answer_was_lost_is_no_error(
    behind: Behind, proxy: FaultProxy, direct: RemoteStore, autojump_clock: MockClock
) -> None:
    put(direct, "a")
    put(direct, "b")
    proxy.lose_answers(method="POST")
    await behind.access.delete(["a", "b"])
    assert list(direct.list_tree("")) == []


async def test_a_copy_whose_answer_was_lost_is_no_error(
    behind: Behind, proxy: FaultProxy, direct: RemoteStore, autojump_clock: MockClock
) -> None:
    put(direct, "a", b"copied")
    proxy.lose_answers(method="PUT")
    info = await behind.access.copy("a", "b")
    assert content(direct, "b", etag=info.etag) == b"copied"


def test_the_proxy_leaves_requests_as_they_are(place: Versitygw, proxy: FaultProxy) -> None:
    """Signatures stay valid, for another client too: boto3 asks to be told before it sends a body."""
    client = place.through(proxy.endpoint).client()
    keys = ["plain", "with space", "100%", "a+b", "grüße"]
    for key in keys:
        client.put_object(Bucket=place.bucket, Key=place.key(key), Body=key.encode(), Metadata={"k": key.encode().hex()})
        answer = client.get_object(Bucket=place.bucket, Key=place.key(key))
        with answer["Body"] as body:
            assert body.read() == key.encode()
        assert answer["Metadata"] == {"k": key.encode().hex()}
        assert client.head_object(Bucket=place.bucket, Key=place.key(key))["ContentLength"] == len(key.encode())
    listed = client.list_objects_v2(Bucket=place.bucket, Prefix=place.key(""))["Contents"]
    assert {found["Key"] for found in listed} == {place.key(key) for key in keys}
    client.delete_object(Bucket=place.bucket, Key=place.key("plain"))
    client.close()


def test_the_proxy_delays_every_answer(proxy: FaultProxy, direct: RemoteStore, place: Versitygw) -> None:
    put(direct, "a")
    store = opened(place.url, dict(place.through(proxy.endpoint).options))
    proxy.delay_seconds = 0.05
    proxy.answer(404, method="PUT")
    began = time.monotonic()
    store.head("a")
    content(store, "a")
    with pytest.raises(RemoteError):
        put(store, "a")
    assert time.monotonic() - began >= 3 * 0.05


def test_faults_of_the_proxy_strike_in_order_and_only_what_they_are_meant_for(
    proxy: FaultProxy, place: Versitygw, direct: RemoteStore
) -> None:
    put(direct, "a", b"12345678")
    store = opened(place.url, dict(place.through(proxy.endpoint).options))
    proxy.let_pass(method="GET", matching="/a")
    proxy.answer(503, method="GET", matching="/a")
    proxy.truncate_answers(method="GET", matching="/a")
    proxy.answer(404, method="PUT", body=b"<Error><Code>NoSuchBucket</Code></Error>")
    store.list_directory("")
    assert content(store, "a") == b"12345678"
    for _ in range(2):
        with pytest.raises(RemoteUnavailableError):
            content(store, "a")
    assert content(store, "a") == b"12345678"
    assert proxy.faults_left() == 1
    proxy.heal()
    put(store, "a")
    assert [seen.method for seen in proxy.wait_requests(6)] == ["GET"] * 5 + ["PUT"]
    assert len(proxy.wait_requests(4, "GET", "/a")) == 4


def test_a_proxy_that_is_down_refuses_and_comes_back_at_the_same_place(
    proxy: FaultProxy, place: Versitygw, direct: RemoteStore
) -> None:
    put(direct, "a")
    store = opened(place.url, dict(place.through(proxy.endpoint).options))
    for _ in range(5):
        assert store.head("a").size_bytes == 5
        endpoint = proxy.endpoint
        proxy.down()
        with pytest.raises(RemoteUnavailableError):
            store.head("a")
        proxy.down()
        proxy.up()
        proxy.up()
        assert proxy.endpoint == endpoint
