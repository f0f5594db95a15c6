"""How tasks ask a store: again after what can pass, a few at a time, at a set rate; and how they judge what it says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.checkpoints.restoring.object_checks import Outcome, checked
from holdfast.digest import fingerprint_of_buffer
from holdfast.errors import ConfigurationError, ObjectMissingError, RemoteUnavailableError
from holdfast.remote import UploadSource
from holdfast.remote.file_store import FileStore
from holdfast_spark.jobs.rate_limit import Pace
from holdfast_spark.stores import StoreAddress, in_parallel, patiently


@dataclass
class Clock:
    """Time that passes when somebody sleeps."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


def test_what_can_pass_is_tried_again() -> None:
    clock, answers = Clock(), iter([RemoteUnavailableError("busy"), RemoteUnavailableError("busy"), None])

    def ask() -> str:
        answer = next(answers)
        if answer is not None:
            raise answer
        return "there"

    assert patiently(ask, clock=clock, sleep=clock.sleep) == "there"
    assert len(clock.slept) == 2


def test_patience_ends_and_an_answer_is_final() -> None:
    clock = Clock()

    def refuse(problem: Exception) -> str:
        raise problem

    with pytest.raises(RemoteUnavailableError):
        patiently(lambda: refuse(RemoteUnavailableError("away")), clock=clock, sleep=clock.sleep)
    assert 50 < clock.now <= 60
    with pytest.raises(ObjectMissingError):
        patiently(lambda: refuse(ObjectMissingError("gone")), clock=clock, sleep=clock.sleep)


def test_results_come_in_order_and_no_more_are_held_than_asked_at_a_time() -> None:
    lock, running, most, taken = threading.Lock(), 0, 0, 0
    all_four = threading.Barrier(4, timeout=60)

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(20):
            taken += 1
            yield number

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        all_four.wait()
        with lock:
            running -= 1
        return number

    results = in_parallel(work, items(), 4)
    assert next(results) == 0
    assert taken == 4
    assert list(results) == list(range(1, 20))
    assert most == 4


def test_a_rate_is_kept_and_no_rate_waits_never() -> None:
    clock = Clock()
    pace = Pace(100.0, clock, clock.sleep)
    for _ in range(50):
        pace.take(10)
    assert 4.4 <= clock.now <= 5.0, "500 of something at 100 a second"
    clock = Clock()
    Pace(None, clock, clock.sleep).take(10**9)
    assert clock.slept == []


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "typo"
    with pytest.raises(ConfigurationError, match="there is no such directory"):
        StoreAddress(f"file://{missing}").open()
    assert not missing.exists()


def test_each_object_is_judged(tmp_path: Path) -> None:
    store, free = FileStore(tmp_path), Pace(None)
    data = b"bytes" * 1000

    def put(key: str, *, with_digest: bool = True) -> tuple[str, int, str]:
        metadata = fingerprint_of_buffer(data).metadata() if with_digest else {}
        store.write(key, UploadSource(len(data), data=data), metadata, create_only=False)
        info = store.head(key)
        return key, info.size_bytes, info.etag

    def outcome(row: tuple[str, int, str]) -> Outcome:
        return checked(store, *row, free.take)[0]

    assert outcome(put("good")) is Outcome.INTACT
    assert outcome(put("plain", with_digest=False)) is Outcome.WITHOUT_DIGEST
    row = put("replaced")
    put("replaced")
    assert outcome(row) is Outcome.REPLACED
    assert outcome(("never", 5, "etag")) is Outcome.GONE
    key, size_bytes, _ = put("rotten")
    with (tmp_path / key).open("r+b") as file:
        file.write(b"B")
    found, detail = checked(store, key, size_bytes, store.head(key).etag, free.take)
    assert found is Outcome.CORRUPT
    assert fingerprint_of_buffer(data).digest.hex() in detail
    empty = fingerprint_of_buffer(b"").metadata()
    store.write("empty", UploadSource(0, data=b""), empty, create_only=False)
    assert outcome(("empty", 0, store.head("empty").etag)) is Outcome.INTACT
