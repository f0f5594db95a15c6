"""What is added up for people who look at the whole: the cache by directory, and the last hour."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from holdfast.control.cache_usage import CacheSurvey
from holdfast.control.history import History
from holdfast.control.messages import CacheUsage, Sample
from holdfast.control.operations import Operation
from holdfast.control.replies import reply, required_path


class SurveyRoutes:
    """The routes by path."""

    def __init__(self, cache: CacheSurvey, history: History) -> None:
        self._cache = cache
        self._history = history
        self.operations = {
            "/v1/usage": Operation(self._usage, CacheUsage, {"path": "string"}, ("path",)),
            "/v1/history": Operation(self._samples, list[Sample]),
        }

    async def run(self) -> None:
        """Take samples until cancelled."""
        await self._history.run()

    async def _usage(self, request: Request) -> Response:
        return reply(await self._cache.below(required_path(request)))

    async def _samples(self, request: Request) -> Response:
        del request
        return reply(self._history.samples())
