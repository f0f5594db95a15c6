"""Servers that are silent, refuse, are dead, or come back: their errors are told apart, and no request waits for ever."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import RemoteRefusedError, RemoteUnavailableError
from holdfast.remote import RemoteStore, open_store
from tests.support.processes.children import family_of
from tests.support.processes.stopping import standing_still
from tests.support.stores.contract_servers import ALL_SERVERS, StoreServer
from tests.unit.remote.test_remote_contract import content, put

pytestmark = pytest.mark.slow


@pytest.fixture(params=ALL_SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    """A server that no other test uses."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(ALL_SERVERS[request.param]())
        except (OSError, subprocess.CalledProcessError) as problem:
            pytest.skip(f"{request.param} can't be had: {problem}")
        yield server


def opened(server: StoreServer, options: dict[str, Any] | None = None, url: str = "", seconds: float = 10.0) -> RemoteStore:
    """Open the store with so much patience for a request."""
    return open_store(
        url or f"{server.url}/place",
        {**server.options, **(options or {})},
        {},
        request_timeout_seconds=seconds,
        connect_timeout_seconds=seconds,
    )


OPERATIONS: list[Callable[[RemoteStore], Any]] = [
    lambda store: store.probe(),
    lambda store: store.head("a"),
    lambda store: store.list_directory(""),
    lambda store: content(store, "a"),
    lambda store: put(store, "b", create_only=True),
    lambda store: store.delete(["b"]),
]


def test_a_server_that_is_stopped_comes_back_and_one_that_is_dead_is_unavailable(server: StoreServer) -> None:
    store = opened(server)
    put(store, "a")
    impatient = opened(server, seconds=0.3)
    with standing_still(server.pid):
        for operation in OPERATIONS:
            with pytest.raises(RemoteUnavailableError):
                operation(impatient)
    assert content(store, "a") == b"bytes"
    _signal(family_of(server.pid), signal.SIGKILL)
    for operation in OPERATIONS:
        with pytest.raises(RemoteUnavailableError):
            operation(store)


@pytest.mark.parametrize("server", sorted(ALL_SERVERS.keys() - {"gs-fake"}), indirect=True)  # which refuses nobody
def test_what_does_not_mend_by_itself_is_refused(server: StoreServer, workspace: Path) -> None:
    put(opened(server), "a")
    others = [opened(server, server.refused)]
    if server.has_objects:
        others.append(opened(server, url=server.url.replace("://", "://absent-")))
    elif "key_filename" in server.options:
        others.append(opened(server, {"key_filename": str(workspace / "absent")}))
        others.append(opened(server, {"host_key_policy": "reject"}))
    for store in others:
        for operation in OPERATIONS[:-1]:
            with pytest.raises(RemoteRefusedError):
                operation(store)


def _signal(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        os.kill(process, number)
