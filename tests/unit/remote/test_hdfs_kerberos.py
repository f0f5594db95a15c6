"""A login by Kerberos at a real HDFS with a KDC: keytabs, tickets of others, and what is wrong with either."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from holdfast.errors import RemoteRefusedError, RemoteUnavailableError
from holdfast.remote import RemoteStore
from tests.support.stores.hdfs import SecureHdfs
from tests.support.stores.kerberos import KerberosClient, client_of, kerberos_packages
from tests.support.stores.renewed_access import read_when_renewed
from tests.unit.remote.test_remote_contract import content, opened, put

pytestmark = pytest.mark.slow

NewClient = Callable[..., KerberosClient]


@pytest.fixture
def new_client(secure_hdfs: SecureHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NewClient:
    """A function that lets this process be a client of the KDC, without a ticket."""
    try:
        kerberos_packages()
    except (OSError, subprocess.CalledProcessError) as problem:
        pytest.skip(f"Kerberos' packages can't be had: {problem}")

    def made(lifetime_seconds: int = 3600) -> KerberosClient:
        return client_of(secure_hdfs, tmp_path, monkeypatch, lifetime_seconds=lifetime_seconds)

    return made


def store_at(secure_hdfs: SecureHdfs) -> RemoteStore:
    """Return the store, which asks Kerberos for tickets."""
    return opened(secure_hdfs.url, {"namenodes": f"localhost:{secure_hdfs.http_port}", "kerberos": True})


def put_in_time(store: RemoteStore, key: str, log_in: Callable[[], None] = lambda: None) -> None:
    """Store an object; a busy machine may need more than one ticket for that."""
    while True:
        log_in()
        with suppress(RemoteUnavailableError):
            put(store, key)
            return


def await_refusal(store: RemoteStore, key: str) -> str:
    """Ask until Kerberos gives no ticket; return what is said then."""
    while True:
        try:
            store.head(key)
        except RemoteUnavailableError as problem:
            if "Kerberos" in str(problem):
                return str(problem)


def test_a_keytab_gives_one_ticket_after_the_other(
    secure_hdfs: SecureHdfs, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = new_client(lifetime_seconds=8)
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(secure_hdfs.keytab("holdfast")))
    store = store_at(secure_hdfs)
    put_in_time(store, "keytab")
    first = client.ticket()
    while client.ticket() == first:
        with suppress(RemoteUnavailableError):  # on a busy machine a ticket may be over before it is used
            assert content(store, "keytab") == b"bytes"
    assert content(store, "keytab") == b"bytes"
    store.delete(["keytab"])
    assert "keytab" not in store.list_directory("").objects


async def test_a_ticket_that_has_expired_is_waited_for(secure_hdfs: SecureHdfs, new_client: NewClient) -> None:
    client = new_client(lifetime_seconds=5)
    store = store_at(secure_hdfs)

    def log_in() -> None:
        client.log_in("holdfast", secure_hdfs.keytab("holdfast"))

    put_in_time(store, "ticket", log_in)
    assert "no ticket for HTTP@localhost: Ticket expired" in await_refusal(store, "ticket")

    async def renew() -> None:
        await trio.to_thread.run_sync(log_in)

    found, events = await read_when_renewed(store, lambda: content(store, "ticket"), renew, 60)
    assert found == b"bytes"
    assert events == ["remote-down", "remote-up"]


def test_without_a_ticket_the_next_is_waited_for(secure_hdfs: SecureHdfs, new_client: NewClient) -> None:
    client = new_client()
    with pytest.raises(RemoteUnavailableError, match=rf"No Kerberos credentials available.*{client.cache}"):
        store_at(secure_hdfs).head("a")


@pytest.mark.parametrize(
    ("keytab_of", "in_its_name", "said"),
    [
        ("stranger", "stranger", "AccessControlException: Permission denied: user=stranger"),
        ("stranger", "nobodies", "no ticket for HTTP@localhost: Client 'nobodies@EXAMPLE.COM' not found"),
        ("stranger", "holdfast", "no ticket for HTTP@localhost: Decrypt integrity check failed"),
    ],
)
def test_a_wrong_principal_or_key_is_told_at_once(
    secure_hdfs: SecureHdfs,
    new_client: NewClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keytab_of: str,
    in_its_name: str,
    said: str,
) -> None:
    new_client()
    keytab = tmp_path / "keytab"
    keytab.write_bytes(secure_hdfs.keytab(keytab_of).read_bytes().replace(keytab_of.encode(), in_its_name.encode()))
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytab))
    with pytest.raises(RemoteRefusedError) as caught:
        store_at(secure_hdfs).head("a")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_namenode_without_a_principal_is_told_at_once(
    secure_hdfs: SecureHdfs, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_client()
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(secure_hdfs.keytab("holdfast")))
    with pytest.raises(
        RemoteRefusedError, match=r"no ticket for HTTP@127\.0\.0\.1: Server .* not found in Kerberos database"
    ):
        opened(secure_hdfs.url, {**secure_hdfs.options, "kerberos": True}).head("a")


def test_a_namenode_without_a_principal_is_left_for_the_next(
    secure_hdfs: SecureHdfs, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_client()
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(secure_hdfs.keytab("holdfast")))
    unknown, known, absent = f"127.0.0.1:{secure_hdfs.http_port}", f"localhost:{secure_hdfs.http_port}", "127.0.0.1:1"
    store = opened(secure_hdfs.url, {"namenodes": f"{unknown}, {known}", "kerberos": True})
    put_in_time(store, "principal")
    assert content(store, "principal") == b"bytes"
    waiting = opened(secure_hdfs.url, {"namenodes": f"{unknown}, {absent}", "kerberos": True})
    with pytest.raises(RemoteUnavailableError, match="refused") as caught:
        waiting.head("principal")
    assert "no ticket for HTTP@127.0.0.1: Server" in str(caught.value)
