"""Summaries of the whole node for people: the cache by directory, the samples of the last day, transfers under way."""

from __future__ import annotations

from itertools import islice

from starlette.requests import Request
from starlette.responses import Response

from holdfast.control.cache_usage import CacheSurvey
from holdfast.control.history import History
from holdfast.control.messages import CacheUsage, Sample, TransferInfo
from holdfast.control.operations import Operation
from holdfast.control.paths import Paths
from holdfast.control.replies import number, reply, required_path
from holdfast.transfer import Fetcher, Uploader

_MOST_TRANSFERS = 200


class SurveyRoutes:
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
