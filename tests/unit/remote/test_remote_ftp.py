"""FTP: a file that a server does not want to show, or can't show now, is never taken for a missing one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.ftp import FTPFileSystem

from holdfast.errors import ObjectChangedError, ObjectMissingError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote import RemoteStore
from tests.support.stores.ftp_server import PASSWORD, FtpServer, serving_ftp
from tests.unit.remote.test_remote_contract import content, opened, put

pytestmark = pytest.mark.slow


@pytest.fixture
def server(workspace: Path) -> Iterator[FtpServer]:
    """A server without files."""
    with serving_ftp(workspace) as server:
        yield server


@pytest.fixture
def store(server: FtpServer) -> RemoteStore:
    """A store there, two directories below the root."""
    return opened(f"{server.url}/srv/box", {"username": "holdfast", "password": PASSWORD})


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("421 too many connections", RemoteUnavailableError),
        ("425 can't open the data connection", RemoteUnavailableError),
        ("450 busy", RemoteUnavailableError),
        ("550 disk failure", RemoteUnavailableError),
        ("550 Permission denied", RemoteRefusedError),
        ("500 unknown command", RemoteRefusedError),
        ("502 not implemented", RemoteRefusedError),
        ("530 log in first", RemoteRefusedError),
    ],
)
def test_a_server_that_lists_nothing_is_not_taken_for_empty(
    server: FtpServer, store: RemoteStore, reply: str, error: type[Exception]
) -> None:
    put(store, "job/a", b"kept")
    server.replies.update(dict.fromkeys(("MLST", "MLSD"), reply))
    attempts: list[Callable[[], Any]] = [
        lambda: store.head("job/a"),
        lambda: store.list_directory("job"),
        lambda: store.list_directory(""),
        lambda: list(store.list_tree("")),
        lambda: content(store, "job/a"),
        lambda: put(store, "job/a", b"lost", create_only=True),
        lambda: put(store, "job/a", b"lost"),
        lambda: store.delete(["job/a"]),
        lambda: store.prune("job"),
        store.look,
    ]
    for attempt in attempts:
        with pytest.raises(error):
            attempt()
    server.replies.clear()
    assert content(store, "job/a") == b"kept"


@pytest.mark.parametrize("verb", ["STOR", "RNTO", "DELE"])
@pytest.mark.parametrize(
    ("reply", "error"), [("550 Permission denied", RemoteRefusedError), ("452 disk full", RemoteUnavailableError)]
)
def test_a_refused_write_leaves_what_is_there(
    server: FtpServer, store: RemoteStore, verb: str, reply: str, error: type[Exception]
) -> None:
    put(store, "a", b"kept")
    server.replies[verb] = reply
    with pytest.raises(error):
        put(store, "a", b"not stored")
    server.replies.clear()
    if verb != "RNTO":  # before which the old object goes, for servers that rename over nothing
        assert content(store, "a") == b"kept"


def test_a_refused_read_is_no_missing_file(server: FtpServer, store: RemoteStore) -> None:
    put(store, "a", b"kept")
    server.replies["RETR"] = "550 Permission denied"
    with pytest.raises(RemoteRefusedError):
        content(store, "a")
    server.replies["RETR"] = "550 No such file"  # as of a file that was replaced meanwhile
    with pytest.raises(ObjectMissingError):
        content(store, "a")
    server.replies["RETR"] = "426 broken off"
    with pytest.raises(RemoteUnavailableError):
        content(store, "a")


@pytest.mark.parametrize("shown", ["{path}", "{name}"])
def test_a_name_that_reads_like_a_reply_is_none(server: FtpServer, store: RemoteStore, shown: str) -> None:
    put(store, "no such file", b"kept")
    server.replies["MLST"] = server.replies["MLSD"] = f"550 {shown}: Permission denied"
    with pytest.raises(RemoteRefusedError):
        store.head("no such file")


def test_a_wrong_password_is_refused_at_once(server: FtpServer) -> None:
    store = opened(f"{server.url}/srv/box", {"username": "holdfast", "password": "anot-her"})
    with pytest.raises(RemoteRefusedError, match="credentials") as caught:
        store.head("a")
    assert "anot-her" not in repr(caught.value)


def test_the_time_of_a_file_is_that_of_the_server(store: RemoteStore, workspace: Path) -> None:
    put(store, "a", b"first")
    first = store.head("a")
    (workspace / "srv/box/a").write_bytes(b"other")
    os.utime(workspace / "srv/box/a", (1_000_000_000, 1_000_000_000))
    assert store.head("a").modified_ns == 1_000_000_000 * 10**9
    with pytest.raises(ObjectChangedError):
        content(store, "a", etag=first.etag)


def test_a_job_in_the_same_process_has_fsspecs_own_file_system(store: RemoteStore) -> None:
    store.probe()
    assert fsspec.get_filesystem_class("ftp") is FTPFileSystem
