"""Delegation tokens of a real HDFS, which last for some seconds there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from holdfast.errors import CredentialsExpiredError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote import RemoteStore
from tests.support.stores.hdfs import SecureHdfs
from tests.support.stores.renewed_access import read_when_renewed
from tests.unit.remote.test_remote_contract import content, opened, put

pytestmark = pytest.mark.slow


def put_in_time(store: Callable[[str], RemoteStore], secure_hdfs: SecureHdfs) -> RemoteStore:
    """Return ``store(TOKEN)`` with an object in it; a busy machine may need more than one token for that."""
    while True:
        opened_now = store(secure_hdfs.new_token())
        try:
            put(opened_now, "a")
            assert content(opened_now, "a") == b"bytes"
        except (CredentialsExpiredError, RemoteUnavailableError):
            continue
        return opened_now


def await_expiry(store: RemoteStore) -> str:
    """Ask until the token of the store has expired; return what is said then."""
    while True:
        try:
            store.head("a")
        except (CredentialsExpiredError, RemoteUnavailableError) as problem:
            return str(problem)


async def test_a_token_that_has_expired_is_waited_for_in_its_file(secure_hdfs: SecureHdfs, tmp_path: Path) -> None:
    file = tmp_path / "token"

    def by_file(token: str) -> RemoteStore:
        file.write_text(token)
        return opened(secure_hdfs.url, {**secure_hdfs.options, "token_file": str(file)})

    store = put_in_time(by_file, secure_hdfs)
    assert "InvalidToken" in (said := await_expiry(store))
    assert f"a new one in {file} is waited for" in said

    async def renew() -> None:
        file.write_text(await trio.to_thread.run_sync(secure_hdfs.new_token))

    found, events = await read_when_renewed(store, lambda: content(store, "a"), renew, 60)
    assert found == b"bytes"
    assert events == ["remote-down", "remote-up"]


def test_a_token_that_nothing_renews_is_told(secure_hdfs: SecureHdfs) -> None:
    store = put_in_time(lambda token: opened(secure_hdfs.url, {**secure_hdfs.options, "token": token}), secure_hdfs)
    assert "InvalidToken" in (said := await_expiry(store))
    assert "it comes from the option token, which nothing renews" in said


def test_without_a_token_nothing_is_answered(secure_hdfs: SecureHdfs) -> None:
    store = opened(secure_hdfs.url, {**secure_hdfs.options, "user": "holdfast"})
    with pytest.raises(RemoteRefusedError):
        store.head("a")
