"""Batches of streaming queries, as their drivers report them, each with what this daemon did meanwhile.

They are kept in memory: the last few thousand of all users, and of each user no more than a part of that. A user reports
for itself alone: the kernel says who reports, and a run of one user is not the run of the same id of another.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from holdfast.control.callers import UserNames
from holdfast.control.http_connection import CALLER
from holdfast.control.messages import BatchInfo, BatchReport
from holdfast.control.operations import Operation, RouteGroup
from holdfast.control.replies import LARGEST_PAGE, body, number, page_size, reply
from holdfast.telemetry import Counters, EventLog

_KEPT_OF_USER = 500
_MOST_USERS = 16
_MOST_RUNS = 64
"""The limit of runs that are remembered for one user."""
_MS = 1000.0
_SHOWN_PARTS = 4


class _Done(NamedTuple):
    """The daemon's work: its counters at a moment, or by how much they rose between two."""

    hits: int
    misses: int
    fetched_bytes: int
    uploaded_bytes: int
    store_requests: int

    @classmethod
    def so_far(cls, counters: Counters) -> _Done:
        return cls(
            counters.hits, counters.misses, counters.bytes_fetched, counters.bytes_uploaded, counters.requests.total()
        )


class _User:
    """The batches of one user, and the counters at the last report of each run, the least recently used run first."""

    def __init__(self) -> None:
        self.batches: deque[BatchInfo] = deque(maxlen=_KEPT_OF_USER)
        self.runs: OrderedDict[str, _Done] = OrderedDict()


class Batches:
    """The batches of all users. ``clock`` returns seconds since the epoch."""

    def __init__(self, counters: Counters, events: EventLog, clock: Callable[[], float]) -> None:
        self._counters = counters
        self._events = events
        self._clock = clock
        self._number = 0
        self._users: OrderedDict[int, _User] = OrderedDict()

    def report(self, uid: int, found: BatchReport) -> None:
        """Take a report of the user ``uid``."""
        user = self._user(uid)
        now = _Done.so_far(self._counters)
        before = user.runs.pop(found.run, now)
        user.runs[found.run] = now
        if len(user.runs) > _MOST_RUNS:
            user.runs.popitem(last=False)
        if found.batch < 0:
            return
        self._number += 1
        info = self._info(uid, found, _Done(*(after - past for after, past in zip(now, before, strict=True))))
        user.batches.append(info)
        self._events.emit(
            "spark-batch",
            uid=uid,
            query=info.query,
            batch=info.batch,
            seconds=info.seconds,
            rows=info.rows,
            parts=_longest(found),
            hits=info.hits,
            misses=info.misses,
            fetched_bytes=info.fetched_bytes,
            uploaded_bytes=info.uploaded_bytes,
            store_requests=info.store_requests,
        )

    def since(self, after: int, query: str | None) -> Iterator[BatchInfo]:
        """Yield the batches after number ``after``, oldest first."""
        found = [each for user in self._users.values() for each in user.batches if each.number > after]
        yield from sorted((each for each in found if query is None or each.query == query), key=lambda each: each.number)

    def _user(self, uid: int) -> _User:
        user = self._users.pop(uid, None) or _User()
        self._users[uid] = user
        if len(self._users) > _MOST_USERS:
            self._users.popitem(last=False)
        return user

    def _info(self, uid: int, found: BatchReport, done: _Done) -> BatchInfo:
        return BatchInfo(
            number=self._number,
            time=self._clock(),
            uid=uid,
            query=found.query,
            run=found.run,
            batch=found.batch,
            seconds=found.milliseconds / _MS,
            rows=found.rows,
            parts={name: each / _MS for name, each in found.parts.items()},
            load_seconds=found.load_milliseconds / _MS,
            commit_seconds=found.commit_milliseconds / _MS,
            hits=done.hits,
            misses=done.misses,
            fetched_bytes=done.fetched_bytes,
            uploaded_bytes=done.uploaded_bytes,
            store_requests=done.store_requests,
        )


class BatchRoutes(RouteGroup):
    """The routes by path."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._users = UserNames()
        self.for_pods = {"/v1/spark/batches/report": Operation(self._report, dict[str, str], body=BatchReport)}
        self.operations = {
            "/v1/spark/batches": Operation(
                self._list, list[BatchInfo], {"query": "string", "since": "number", "limit": "number"}
            ),
            **self.for_pods,
        }

    async def _list(self, request: Request) -> Response:
        since = number(request.query_params.get("since", "0"), "since")
        found = list(self._batches.since(since, request.query_params.get("query")))[-page_size(request, LARGEST_PAGE) :]
        names = await self._users.of(each.uid for each in found)
        return reply([structs.replace(each, user=names.get(each.uid, "")) for each in found])

    async def _report(self, request: Request) -> Response:
        self._batches.report(request.scope[CALLER].uid, await body(request, BatchReport))
        return reply({})


def _longest(found: BatchReport) -> str:
    """Return the parts that took longest, without Spark's own total."""
    parts = [(each, name) for name, each in found.parts.items() if name != "triggerExecution" and each >= 1]
    shown = [f"{name}={each / _MS:.3g}s" for each, name in sorted(parts, reverse=True)[:_SHOWN_PARTS]]
    return " ".join(shown)
