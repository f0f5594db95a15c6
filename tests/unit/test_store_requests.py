"""Requests to a store that fail: nothing of them stays in memory, whether the garbage collector comes or not."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import cast

import pytest

from holdfast.errors import ObjectMissingError, RemoteUnavailableError
from holdfast.remote import ObjectInfo, RemoteStore, UploadSource
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import RemoteAccess


class Failing:
    """A store that has nothing and takes nothing."""

    def head(self, key: str) -> ObjectInfo:
        raise ObjectMissingError(key)

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        raise RemoteUnavailableError(key)


class Metadata(dict[str, str]):
    """Metadata that can be referred to weakly."""


@pytest.fixture
def access(events: EventLog) -> RemoteAccess:
    return RemoteAccess(
        "checkpoints",
        cast(RemoteStore, Failing()),
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
        await access.head(key, insist=False)
    del key
    assert kept() is None
