"""Stores as tasks use them: an address that can be sent to executors, and requests with retries.

The only module of the Spark side that opens stores. Jobs list and read too much for one machine, so they can't use a
daemon's mount. Executors need the package with its extra, ``holdfast[stores]``, and credentials in their environment.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from holdfast import extras
from holdfast.errors import ConfigurationError, HoldfastError

try:
    from holdfast.remote import (
        PRIVATE,
        DirectoryInfo,
        ObjectInfo,
        RemoteStore,
        directory_of,
        is_private,
        key_below,
        open_store,
    )
except ModuleNotFoundError as problem:
    if not extras.missing(extras.STORES):
        raise
    raise ModuleNotFoundError(extras.advice(extras.STORES, __name__), name=problem.name) from problem

__all__ = [
    "PRIVATE",
    "DirectoryInfo",
    "ObjectInfo",
    "RemoteStore",
    "StoreAddress",
    "in_parallel",
    "is_private",
    "key_below",
    "patiently",
]

_T = TypeVar("_T")
_R = TypeVar("_R")

_REQUEST_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
_PATIENCE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_PARALLEL = 8


@dataclass(frozen=True)
class StoreAddress:
    """The address of a store. ``options`` go to the library behind its scheme, as in the daemon's configuration."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> RemoteStore:
        """Open the store. Never creates its directory. Raises ``ConfigurationError`` and ``RemoteRefusedError``."""
        if self.url.startswith("file://") and not directory_of(self.url).is_dir():
            raise ConfigurationError(f"{self.url}: there is no such directory")
        return open_store(
            self.url,
            self.options,
            os.environ,
            request_timeout_seconds=_REQUEST_SECONDS,
            connect_timeout_seconds=_CONNECT_SECONDS,
        )


def patiently(
    ask: Callable[[], _T],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """Return ``ask()``, retrying transient errors for a minute. Raises the last one, and any other error at once."""
    deadline = clock() + _PATIENCE_SECONDS
    pause_seconds = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return ask()
        except HoldfastError as problem:
            if not problem.transient or clock() + pause_seconds > deadline:
                raise
        sleep(pause_seconds * random.uniform(0.5, 1.0))
        pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)


def in_parallel(function: Callable[[_T], _R], items: Iterable[_T], parallel: int = _PARALLEL) -> Iterator[_R]:
    """Yield ``function`` of each item, in order, a few at a time. Holds no more results than that."""
    waiting = iter(items)
    with ThreadPoolExecutor(parallel) as pool:
        while some := list(islice(waiting, parallel)):
            yield from pool.map(function, some)
