"""Summaries of the whole node for people: the cache by directory, the samples of the last day, transfers under way."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response

from holdfast.control.cache_usage import CacheSurvey
from holdfast.control.messages import CacheUsage, Sample, TransferInfo
from holdfast.control.operations import Operation, RouteGroup
from holdfast.control.paths import Paths
from holdfast.control.replies import number, reply, required_path
from holdfast.telemetry.wakeups import sleep_within
from holdfast.transfer import Fetcher, Uploader

_MOST_TRANSFERS = 200
_PERIOD_SECONDS = 10.0
_KEPT = 361  # an hour: the difference of two samples is what was between them
_COARSE = 30  # one sample in so many is kept for a day
_KEPT_COARSE = 289


class SurveyRoutes(RouteGroup):
    """The routes by path."""

    def __init__(self, cache: CacheSurvey, history: History, fetcher: Fetcher, uploader: Uploader, paths: Paths) -> None:
        self._cache = cache
        self._history = history
        self._fetcher = fetcher
        self._uploader = uploader
        self._paths = paths
        self.operations = {
            "/v1/usage": Operation(self._usage, CacheUsage, {"path": "string"}, ("path",)),
            "/v1/history": Operation(self._samples, list[Sample], {"since": "number"}),
            "/v1/transfers": Operation(self._transfers, list[TransferInfo]),
        }

    async def run(self) -> None:
        """Take samples until cancelled."""
        await self._history.run()

    async def _usage(self, request: Request) -> Response:
        return reply(await self._cache.below(required_path(request)))

    async def _samples(self, request: Request) -> Response:
        since = number(request.query_params.get("since", "0"), "since")
        return reply(self._history.samples(since))

    async def _transfers(self, request: Request) -> Response:
        del request
        fetches = (
            TransferInfo(
                direction="fetch",
                store=fetch.target.remote.name,
                path=self._paths.absolute(fetch.target.path),
                size_bytes=fetch.known.size_bytes,
                done_bytes=fetch.arrived_bytes,
                in_background=fetch.in_background,
            )
            for fetch in self._fetcher.fetches()
        )
        sends = (
            TransferInfo(
                direction="send",
                store=upload.store,
                path=self._paths.absolute(f"{upload.store}/{upload.key}".encode()),
                size_bytes=upload.size_bytes,
            )
            for upload in self._uploader.uploads()
        )
        return reply([*islice(fetches, _MOST_TRANSFERS), *islice(sends, _MOST_TRANSFERS)])


class History:
    """The past in samples of the counters: every ten seconds for an hour, every five minutes for a day. In memory only.

    ``sample`` takes one. It must be cheap: it is called on the event loop.
    """

    def __init__(self, sample: Callable[[], Sample]) -> None:
        self._sample = sample
        self._fine: deque[Sample] = deque(maxlen=_KEPT)
        self._coarse: deque[Sample] = deque(maxlen=_KEPT_COARSE)

    async def run(self) -> None:
        """Take samples until cancelled."""
        for count in itertools.count():
            sample = self._sample()
            self._fine.append(sample)
            if count % _COARSE == 0:
                self._coarse.append(sample)
            await sleep_within(_PERIOD_SECONDS)

    def samples(self, since: float = 0.0) -> list[Sample]:
        """Return the samples after ``since`` (seconds since the epoch), oldest first, and one of now."""
        begin = self._fine[0].time if self._fine else math.inf
        past = itertools.chain((sample for sample in self._coarse if sample.time < begin), self._fine)
        return [*(sample for sample in past if sample.time > since), self._sample()]
