"""What operations add up to, and the screen of ``holdfast top``, driven as by keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, cast

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from holdfast.cli.activity import Activity, Groups, Lately, Processes
from holdfast.cli.top import Top
from holdfast.control.client import ControlClient
from holdfast.control.messages import OperationInfo, OperationsInfo, RemoteStatus, Status, TransferInfo
from holdfast.errors import DaemonUnreachableError

pytestmark = pytest.mark.slow

OPERATION = OperationInfo(
    time=0.0,
    operation="open",
    zone="checkpoints",
    path="/mnt/checkpoints/flights/state/0/3/7.delta",
    target="",
    pid=7,
    uid=1,
    seconds=0.001,
    error="",
    cache="hit",
    data_bytes=0,
    fetched_bytes=0,
    store_requests=0,
    store_seconds=0.0,
)
STATUS = Status(
    pid=1,
    version="1",
    mountpoint="/mnt",
    data_mode="passthrough",
    takeover="takeover",
    uptime_seconds=5.0,
    remotes={"checkpoints": RemoteStatus(url="s3://b", up=False, since=1.0, problem="gone", pending_deletions=0)},
    max_bytes=1000,
    free_bytes=5,
    min_free_bytes=0,
    cached_bytes=500,
    counters={"hits": 3, "misses": 1, "bytes_fetched": 0, "bytes_uploaded": 0},
    unsent_files=2,
)


def gone(thread: int) -> str:
    raise FileNotFoundError(thread)


def changed(**fields: Any) -> OperationInfo:
    return msgspec.structs.replace(OPERATION, **fields)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/mnt/checkpoints/flights/state/0/3/7.delta", "checkpoints/flights"),
        ("/mnt/checkpoints/team/flights/offsets/7", "checkpoints/team/flights"),
        ("/mnt/checkpoints/job/chk-3/_metadata", "checkpoints/job"),
        ("/mnt/checkpoints/metadata", "checkpoints"),
        ("/mnt/blobs/models/a/b/c/d", "blobs/models/a"),
        ("/mnt/work/driver_a/tmp/blockmgr/x", "work/driver_a"),
        ("/mnt/checkpoints", "checkpoints"),
        ("/mnt", "/"),
    ],
)
def test_a_path_belongs_to_a_query_a_job_or_a_working_directory(path: str, place: str) -> None:
    assert Groups("/mnt", ("checkpoints", "blobs"), Processes()).place(path) == place


def test_operations_are_added_up_with_what_they_waited_for() -> None:
    alive = {7: "7 java"}
    processes = Processes(lambda thread: alive[thread] if thread in alive else gone(thread))
    activity = Activity(Groups("/mnt", ("checkpoints",), processes).by["process"])
    for number in range(99):
        activity.add(changed(seconds=0.001 * (number + 1)))
    activity.add(changed(seconds=9.0, cache="miss", fetched_bytes=10, store_seconds=8.0, error="EIO"))
    activity.add(changed(pid=8, operation="lookup", error="ENOENT"))
    alive.clear()
    activity.add(OPERATION)
    assert set(activity.tallies) == {"7 java", "8"}
    assert activity.tallies["8"].errors == 0
    tally = activity.tallies["7 java"]
    assert (tally.count, tally.hits, tally.misses, tally.errors) == (101, 100, 1, 1)
    assert (tally.fetched_bytes, tally.store_seconds, tally.longest) == (10, 8.0, 9.0)
    assert 0.05 <= tally.within(0.5) <= 0.05 * 1.3
    assert 0.098 <= tally.within(0.98) <= 0.099 * 1.3
    assert tally.within(1.0) == 9.0


def test_what_was_long_ago_is_forgotten_and_groups_are_bounded() -> None:
    lately = Lately(lambda operation: operation.path, 3)
    lately.add(OPERATION)
    for _ in range(2):
        lately.turn()
    lately.add(changed(seconds=5.0))
    assert lately.tallies()[OPERATION.path].count == 2
    lately.turn()
    assert lately.tallies()[OPERATION.path].seconds == 5.0
    activity = Activity(lambda operation: operation.path)
    for number in range(10_050):
        activity.add(changed(path=str(number)))
    assert len(activity.tallies) == 10_001
    assert activity.tallies["(others)"].count == 50


class Daemon:
    """Answers as ``ControlClient`` does: some operations at once, and then nothing new."""

    def __init__(self) -> None:
        self.is_away = False
        self.more: list[OperationInfo] = []
        self.found = STATUS

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def watch_operations(self) -> Iterator[OperationsInfo]:
        while True:
            self._check()
            found, self.more = self.more, []
            yield OperationsInfo(operations=found, lost=5 if found else 0)
            time.sleep(0.01)  # as long as a line of the stream is waited for

    def status(self) -> Status:
        self._check()
        return self.found

    def transfers(self) -> list[TransferInfo]:
        return [
            TransferInfo(direction="fetch", store="b", path="/mnt/blobs/\x1b[31mx", size_bytes=100, done_bytes=50),
            TransferInfo(direction="send", store="b", path="/mnt/blobs/y", size_bytes=100),
        ]

    def _check(self) -> None:
        if self.is_away:
            raise DaemonUnreachableError("nobody there")


@pytest.fixture(autouse=True)
def _long_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep in the table what a slow machine has yet to look at."""
    monkeypatch.setattr("holdfast.cli.top._SPANS", 600)


def rows(app: Top) -> list[str]:
    table = app.query_one(DataTable)
    return [str(table.get_row_at(at)[0]) for at in range(table.row_count)]


def text(app: Top, name: str) -> str:
    return str(app.query_one(name, Static).render())


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)


def driven(daemon: Daemon, steps: Callable[[Top, Pilot[None]], Awaitable[None]], columns: int = 140) -> None:
    async def run() -> None:
        app = Top(lambda: cast(ControlClient, daemon), Processes(gone))
        async with app.run_test(size=(columns, 40)) as pilot:
            await steps(app, pilot)

    asyncio.run(run())


def test_top_shows_what_is_wrong_and_the_stores_on_a_narrow_terminal() -> None:
    daemon = Daemon()
    daemon.found = msgspec.structs.replace(STATUS, node="node7", problems=["the store checkpoints does not answer"])

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "node7" in text(app, "#facts"))
        assert text(app, "#facts").startswith("WRONG  the store checkpoints does not answer")
        assert app.query_one("#facts").size.width >= 78
        assert "checkpoints DOWN" in text(app, "#facts")
        assert not app.query_one("#rates").display
        await pilot.press("q")

    driven(daemon, steps, columns=80)


def test_top_groups_sorts_filters_and_pauses_by_keys() -> None:
    daemon = Daemon()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "/mnt" in text(app, "#facts"))
        daemon.more = [changed(operation="read", seconds=3.0), *[OPERATION] * 3, changed(pid=8, path="/mnt/work/driver_a/x")]
        await until(pilot, lambda: rows(app) == ["read", "open"])
        await pilot.press("s")
        assert rows(app) == ["open", "read"]
        await pilot.press("n")
        assert rows(app) == ["open", "read"]
        assert "5 operations came too fast" in text(app, "#said")
        await pilot.press("2")
        assert rows(app) == []
        daemon.more = [OPERATION, changed(pid=8)]
        await until(pilot, lambda: rows(app) == ["7", "8"])
        await pilot.press("g")
        daemon.more = [OPERATION, changed(path="/mnt/work/driver_\x1b[2Ja/x")]
        await until(pilot, lambda: rows(app) == ["checkpoints/flights", "work/driver_\\x1b[2Ja"])
        await pilot.press("slash")
        await until(pilot, lambda: app.focused is app.query_one(Input))
        await pilot.press(*"flig")
        await until(pilot, lambda: rows(app) == ["checkpoints/flights"])
        await pilot.press("escape")
        await until(pilot, lambda: len(rows(app)) == 2)
        await pilot.press("space")
        assert "PAUSED" in text(app, "#said")
        await pilot.press("h")
        assert app.query_one("#help").has_class("shown")
        assert app.screen.get_widget_at(10, 2)[0].id == "help", "it is above the rest"
        await pilot.press("q")

    driven(daemon, steps)


def test_top_shows_the_daemon_its_transfers_and_that_it_is_away() -> None:
    daemon = Daemon()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "2 files UNSENT" in text(app, "#facts"))
        assert "checkpoints DOWN" in text(app, "#facts")
        assert "[██████████··········]" in text(app, "#transfers")
        assert "blobs/\\x1b[31mx" in text(app, "#transfers")
        daemon.is_away = True
        await until(pilot, lambda: "not connected" in text(app, "#said"))
        daemon.is_away = False
        await until(pilot, lambda: "sorted by" in text(app, "#said"))
        await pilot.press("q")

    driven(daemon, steps)
