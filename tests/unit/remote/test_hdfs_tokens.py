"""Delegation tokens of a real HDFS, which last for some seconds there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from holdfast.errors import CredentialsExpiredError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote import RemoteStore
from tests.support.stores.hdfs import NoHdfsError, SecureHdfs, serving_secure_hdfs
from tests.support.stores.renewed_access import read_when_renewed
from tests.unit.remote.test_remote_contract import content, opened, put

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[SecureHdfs]:
    """An HDFS with Kerberos."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(serving_secure_hdfs("dfs.namenode.delegation.token.renew-interval=6000"))
        except NoHdfsError as problem:
            pytest.skip(str(problem))
        yield running


def put_in_time(store: Callable[[str], RemoteStore], server: SecureHdfs) -> RemoteStore:
    """Return ``store(TOKEN)`` with an object in it; a busy machine may need more than one token for that."""
    while True:
        opened_now = store(server.new_token())
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


async def test_a_token_that_has_expired_is_waited_for_in_its_file(server: SecureHdfs, tmp_path: Path) -> None:
    file = tmp_path / "token"

    def by_file(token: str) -> RemoteStore:
        file.write_text(token)
        return opened(server.url, {**server.options, "token_file": str(file)})

    store = put_in_time(by_file, server)
    assert "InvalidToken" in (said := await_expiry(store))
    assert f"a new one in {file} is waited for" in said

    async def renew() -> None:
        file.write_text(await trio.to_thread.run_sync(server.new_token))

    found, events = await read_when_renewed(store, lambda: content(store, "a"), renew, 60)
    assert found == b"bytes"
    assert events == ["remote-down", "remote-up"]


def test_a_token_that_nothing_renews_is_told(server: SecureHdfs) -> None:
    store = put_in_time(lambda token: opened(server.url, {**server.options, "token": token}), server)
    assert "InvalidToken" in (said := await_expiry(store))
    assert "it comes from the option token, which nothing renews" in said


def test_without_a_token_nothing_is_answered(server: SecureHdfs) -> None:
    store = opened(server.url, {**server.options, "user": "holdfast"})
    with pytest.raises(RemoteRefusedError):
        store.head("a")
