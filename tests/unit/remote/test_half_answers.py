"""Answers that stop in the middle, come byte by byte or not at all: each store ends in time, and has no wrong bytes."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest
import trio

from holdfast.errors import ObjectMissingError, RemoteUnavailableError
from holdfast.remote import UploadSource, open_store
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import RemoteAccess
from tests.support.stores.contract_servers import ALL_SERVERS, StoreServer
from tests.support.stores.cutting_proxy import CuttingProxy
from tests.unit.remote.test_remote_contract import content, opened, put

pytestmark = pytest.mark.slow

OBJECT_BYTES = 3 * 2**20
HALF_BYTES = OBJECT_BYTES // 2
SHORTEST_REQUEST_SECONDS = 0.5
REQUESTS_UNTIL_DEADLINE = 2
Fault = Callable[[CuttingProxy], None]
WHOLE_FAULTS: dict[str, Fault] = {
    "silent": lambda proxy: proxy.stall_after(0),
    "byte by byte": CuttingProxy.trickle,
    "refused": CuttingProxy.refuse,
}
FAULTS: dict[str, Fault] = {
    **WHOLE_FAULTS,
    "half and silent": lambda proxy: proxy.stall_after(HALF_BYTES),
    "half and closed": lambda proxy: proxy.close_after(HALF_BYTES),
}


class Far:
    """A place at a server, and how a node reaches it through proxies.

    A request has twice the time that it takes while nothing is wrong, which differs between libraries and machines.
    """

    def __init__(self, server: StoreServer, proxies: list[CuttingProxy], options: dict[str, Any]) -> None:
        url = f"{server.url}/place"
        self.direct = opened(url, server.options)
        self._proxies = proxies
        put(self.direct, "object", os.urandom(OBJECT_BYTES))
        began = time.monotonic()
        content(opened(url, options), "object")
        self.request_seconds = max(SHORTEST_REQUEST_SECONDS, round(2 * (time.monotonic() - began), 1))
        self.deadline_seconds = REQUESTS_UNTIL_DEADLINE * self.request_seconds
        self.store = open_store(
            url,
            options,
            {},
            request_timeout_seconds=self.request_seconds,
            connect_timeout_seconds=self.request_seconds,
        )

    def strike(self, fault: Fault) -> None:
        for proxy in self._proxies:
            fault(proxy)

    def heal(self) -> None:
        for proxy in self._proxies:
            proxy.heal()


@pytest.fixture(scope="module", params=ALL_SERVERS)
def far(request: pytest.FixtureRequest) -> Iterator[Far]:
    """Each server behind a proxy; a namenode and its datanode each behind one."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(ALL_SERVERS[request.param]())
        except (OSError, subprocess.CalledProcessError) as problem:
            pytest.skip(f"{request.param} can't be had: {problem}")
        proxies = []
        if request.param == "hdfs":
            datanode = stack.enter_context(CuttingProxy(_datanode_port(server)))
            proxies.append(datanode)
            exchanged = {b":%d/" % _datanode_port(server): b":%d/" % datanode.port}
            assert len({len(each) for pair in exchanged.items() for each in pair}) == 1
        else:
            exchanged = {}
        port = _port(server.options)
        proxies.append(stack.enter_context(CuttingProxy(port, exchanged)))
        options = {name: _moved(value, port, proxies[-1].port) for name, value in server.options.items()}
        yield Far(server, proxies, options)


def _port(options: dict[str, Any]) -> int:
    addresses = [str(options[name]) for name in ("endpoint", "base_url", "namenodes") if name in options]
    address = addresses[0] if addresses else f":{options['port']}"
    return int(address.removeprefix("http://").partition(":")[2].partition("/")[0])


def _moved(value: Any, port: int, to: int) -> Any:
    if value == port:
        return to
    return value.replace(f"127.0.0.1:{port}", f"127.0.0.1:{to}") if isinstance(value, str) else value


def _datanode_port(server: StoreServer) -> int:
    put(opened(f"{server.url}/place", server.options), "asked")
    path = "/" + server.url.partition("://")[2].partition("/")[2]
    query = "op=OPEN&noredirect=true&user.name=holdfast"
    answer = httpx.get(f"http://{server.options['namenodes']}/webhdfs/v1{path}/place/asked?{query}", timeout=60)
    return httpx.URL(answer.json()["Location"]).port or 0


def access_to(far: Far, events: EventLog) -> RemoteAccess:
    return RemoteAccess(
        "checkpoints",
        far.store,
        deadline_seconds=far.deadline_seconds,
        request_timeout_seconds=far.request_seconds,
        parallel=4,
        events=events,
        counters=Counters(),
        clock=lambda: 0.0,
    )


async def until_answered(function: Callable[[], Any]) -> Any:
    """Ask again until the store has answered: a busy machine may take longer than a request has here."""
    with trio.fail_after(120):
        while True:
            try:
                return await function()
            except RemoteUnavailableError:
                continue


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_answer_is_waited_for_beyond_the_deadline_and_none_is_half(far: Far, fault: str) -> None:
    data, replaced = os.urandom(OBJECT_BYTES), os.urandom(OBJECT_BYTES)
    far.direct.delete(["new"])
    etag = put(far.direct, "object", data).etag
    events = EventLog(lambda: 0.0)
    access = access_to(far, events)
    assert await until_answered(lambda: access.read(content, far.store, "object", 0, OBJECT_BYTES, etag)) == data
    seen = len(events.since(0))
    far.strike(FAULTS[fault])
    try:
        began = trio.current_time()
        with pytest.raises(RemoteUnavailableError, match=re.escape(f"gave up after {far.deadline_seconds:g} s")):
            await access.read(content, far.store, "object", 0, OBJECT_BYTES, etag)
        # The last try begins before the deadline, and a library may be silent for twenty requests (obstore).
        assert trio.current_time() - began < far.deadline_seconds + 20 * far.request_seconds + 10
        if fault in WHOLE_FAULTS:
            with pytest.raises(RemoteUnavailableError):
                await access.list_directory("")
            with pytest.raises(RemoteUnavailableError):
                await access.write_once("new", UploadSource(OBJECT_BYTES, data=replaced), {}, create_only=True)
            assert not access.health.up
    finally:
        far.heal()
    assert await until_answered(lambda: access.read(content, far.store, "object", 0, OBJECT_BYTES, etag)) == data
    assert "object" in (await until_answered(lambda: access.list_directory(""))).objects
    assert access.health.up
    if fault in WHOLE_FAULTS:
        kinds = [event.kind for event in events.since(0)][seen:]
        assert kinds[0] == "remote-down"
        assert kinds[-1] == "remote-up"
    with suppress(ObjectMissingError):  # a request whose answer was lost may have been carried out
        assert content(far.direct, "new") == replaced
