"""The progress of a job, for people: on stderr a line now and then, at a terminal one that moves."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from pyspark import SparkContext
from pyspark.sql import SparkSession

_SECONDS = 0.5
_SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """Tells which step is under way and, by Spark's own count, how many of its tasks are done."""

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self._name = name
        self._stream = stream or sys.stderr
        self._context: SparkContext | None = None
        self._told = 0.0

    def of(self, spark: SparkSession) -> Progress:
        """Count the tasks of this session."""
        self._context = spark.sparkContext
        return self

    @contextmanager
    def step(self, what: str, *, follow: bool = True) -> Iterator[None]:
        """Say how long the block takes; with ``follow``, how far the Spark jobs are that this thread starts within it."""
        began = self._told = time.monotonic()
        over = threading.Event()
        follower = threading.Thread(target=self._follow, args=(what, self._group(what), over), daemon=True)
        if follow:
            follower.start()
        try:
            yield
        finally:
            over.set()
            if follow:
                follower.join()
        self._say(f"{what}: {time.monotonic() - began:.1f} s")

    def tell(self, sentence: str) -> None:
        """Tell how far a step is in words of its own: at once at a terminal, else now and then."""
        if self._stream.isatty():
            self._stream.write(f"\r\033[K{self._name}: {sentence} …")
            self._stream.flush()
        elif time.monotonic() - self._told > _SECONDS_BETWEEN_LINES:
            self._told = time.monotonic()
            self._say(sentence)

    def _group(self, what: str) -> str:
        group = uuid.uuid4().hex
        if self._context is not None:
            self._context.setJobGroup(group, f"{self._name}: {what}")
        return group

    def _follow(self, what: str, group: str, over: threading.Event) -> None:
        while not over.wait(_SECONDS):
            done, total = self._tasks(group)
            self.tell(f"{what}: {done} of {total} tasks" if total else what)

    def _tasks(self, group: str) -> tuple[int, int]:
        if self._context is None:
            return 0, 0
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
        found = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in found), sum(stage.numTasks for stage in found)

    def _say(self, sentence: str) -> None:
        start = "\r\033[K" if self._stream.isatty() else ""
        self._stream.write(f"{start}{self._name}: {sentence}\n")
        self._stream.flush()
