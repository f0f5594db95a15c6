"""Batches of streaming queries: what jobs report, and what is shown of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.control.messages.message import Message

Name = Annotated[str, msgspec.Meta(max_length=200)]
"""A text of a caller's that others will read."""
Part = Annotated[str, msgspec.Meta(max_length=40)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class BatchReport(Message, frozen=True):
    """A batch of a streaming query that is over, or with ``batch`` -1 the start of a run of it.

    ``query`` is its name, ``run`` the id of this run of it. ``parts`` are Spark's ``durationMs``: how long each part of the
    batch took. ``load_milliseconds`` and ``commit_milliseconds`` are of the state stores, all partitions together.
    """

    query: Name
    run: Name
    batch: Annotated[int, msgspec.Meta(ge=-1, le=2**62)]
    milliseconds: Milliseconds = 0.0
    rows: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    parts: Annotated[dict[Part, Milliseconds], msgspec.Meta(max_length=16)] = {}
    load_milliseconds: Milliseconds = 0.0
    commit_milliseconds: Milliseconds = 0.0


class BatchInfo(Message, frozen=True):
    """A batch that the user ``uid`` has reported, and what this daemon did since that run's report before.

    ``number`` counts reports; ``time`` is the report's, in seconds since the epoch. What was done was done for whichever
    process of this node asked for it, so for this batch alone only if nobody else was busy here; what executors on other
    nodes asked of their daemons is not in it.
    """

    number: int
    time: float
    uid: int
    query: str
    run: str
    batch: int
    seconds: float
    rows: int
    parts: dict[str, float]
    load_seconds: float
    commit_seconds: float
    hits: int
    misses: int
    fetched_bytes: int
    uploaded_bytes: int
    store_requests: int
    user: str = ""
    """The name of that user, if it has one."""
