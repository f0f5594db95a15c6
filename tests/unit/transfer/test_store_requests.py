"""Requests to a store that fail: what they say of the store; and nothing of them stays in memory."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import cast

import pytest

from holdfast.errors import ObjectMissingError, RemoteError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote import ObjectInfo, RemoteStore, UploadSource
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import RemoteAccess


class Failing:
    """A store that has nothing and takes nothing."""

    requests_in_a_call = 2

    def head(self, key: str) -> ObjectInfo:
        raise ObjectMissingError(key)

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        raise RemoteUnavailableError(key)


class Refusing(Failing):
    """A store that fails for an object as told, and answers a probe as told."""

    def __init__(self, problem: RemoteError, probed: RemoteError | None) -> None:
        self.problem = problem
        self.probed = probed
        self.probes = 0

    def head(self, key: str) -> ObjectInfo:
        raise self.problem

    def probe(self) -> None:
        self.probes += 1
        if self.probed is not None:
            raise self.probed


@pytest.mark.parametrize("problem", [RemoteRefusedError, RemoteUnavailableError])
@pytest.mark.parametrize(
    ("of_store", "probed", "probes", "up"),
    [
        (True, None, 0, False),
        (False, None, 1, True),
        (False, RemoteRefusedError("all is refused"), 3, False),
        (False, RemoteUnavailableError("no answer"), 3, False),
    ],
)
async def test_a_store_counts_as_down_by_what_says_something_of_it(
    events: EventLog, problem: type[RemoteError], probed: RemoteError | None, *, of_store: bool, probes: int, up: bool
) -> None:
    store = Refusing(problem("no", of_store=of_store), probed)
    access = access_to(store, events)
    for _ in range(3):
        with pytest.raises(problem):
            await access.head("key", retry=False)
    assert (access.health.up, store.probes) == (up, probes)
    assert [event.kind for event in events.since(0)] == ([] if up else ["remote-down"])
    assert access.health.problem == ("" if up else str(probed or store.problem))


class Metadata(dict[str, str]):
    """Metadata that can be referred to weakly."""


@pytest.fixture
def access(events: EventLog) -> RemoteAccess:
    return access_to(Failing(), events)


def access_to(store: Failing, events: EventLog) -> RemoteAccess:
    return RemoteAccess(
        "checkpoints",
        cast(RemoteStore, store),
        deadline_seconds=1.0,
        parallel=1,
        events=events,
        counters=Counters(),
        clock=lambda: 0.0,
    )


async def test_of_a_put_that_failed_nothing_is_kept(access: RemoteAccess, without_collector: None) -> None:
    metadata = Metadata()
    kept = weakref.ref(metadata)
    with suppress(RemoteUnavailableError):
        await access.write_once("key", UploadSource(1, b"1"), metadata, create_only=False)
    del metadata
    assert kept() is None


async def test_of_a_question_that_failed_nothing_is_kept(access: RemoteAccess, without_collector: None) -> None:
    class Key(str):
        __slots__ = ("__weakref__",)

    key = Key("key")
    kept = weakref.ref(key)
    with suppress(ObjectMissingError):
        await access.head(key, retry=False)
    del key
    assert kept() is None
