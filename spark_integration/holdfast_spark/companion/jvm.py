"""The driver on the other side of the pipe: questions to the JVM, and their answers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO

from holdfast_spark.companion.lines import line_of
from holdfast_spark.placement.driver import Executor, FurtherPlaces, Instance, StreamingQuery, words_of_further_places

_ANSWER_SECONDS = 30.0


class JvmError(Exception):
    """The JVM could not answer."""


class JvmDriver:
    """The driver, as ``Driver`` describes it. Any thread may ask; ``settle`` is called with what the JVM answers."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._writing = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[str, Future[list[str]]] = {}

    def send(self, *fields: str) -> None:
        """Send a line."""
        data = f"{line_of(fields)}\n".encode("utf-8", "surrogateescape")
        with self._writing:
            self._output.write(data)
            self._output.flush()

    def settle(self, number: str, answer: list[str], *, is_fault: bool) -> None:
        """Pass an answer on to whoever waits for it."""
        asked = self._asked.get(number)
        if asked is None:
            return
        if is_fault:
            asked.set_exception(JvmError(answer[0]))
        else:
            asked.set_result(answer)

    def seconds_since_start(self) -> float:
        """Return how long ago the application was started."""
        return int(self._ask("age")[0]) / 1000

    def executors(self) -> list[Executor]:
        """Return the executors that get tasks now."""
        words = iter(self._ask("executors"))
        each = zip(words, words, words, words, strict=True)
        return [Executor(number, host, int(cores), node) for number, host, cores, node in each]

    def query(self, query_id: str) -> StreamingQuery | None:
        """Return a query that is active; None for one that has ended."""
        found = self._ask("query", query_id)
        return StreamingQuery(query_id, *found[:2]) if found else None

    def plan(self, query: StreamingQuery) -> str:
        """Return the analyzed plan of a query, as Spark prints it; empty if the query has ended."""
        found = self._ask("query", query.id)
        return found[2] if found else ""

    def shuffle_partitions(self, query: StreamingQuery) -> int:
        """Return how many partitions the state of a new query gets; 0 if the query has ended."""
        found = self._ask("query", query.id)
        return int(found[3]) if found else 0

    def has_jobs(self, run_id: str) -> bool:
        """Say whether Spark has had anything to do for a run of a query."""
        return self._ask("jobs", run_id) != ["0"]

    def tell(self, query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        """Tell the coordinator of state stores where each one is; return how many were told."""
        return self._count("tell", query, run_id, instances)

    def elsewhere(self, query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        """Return how many state stores the coordinator knows with another executor now."""
        return self._count("elsewhere", query, run_id, instances)

    def tell_further_places(self, run_id: str, further: FurtherPlaces) -> None:
        """Tell where tasks of a run go whose executor is lost."""
        self._ask("further-places", *words_of_further_places(run_id, further))

    def load_classes(self, names: Path, parts: int, left_out: int) -> None:
        """Have a thread of the JVM load the classes that a file names, but for one of so many parts of them."""
        self._ask("load-classes", str(names), str(parts), str(left_out))

    def write_classes(self, names: Path) -> None:
        """Have the names of the JVM's classes written to a file."""
        self._ask("write-classes", str(names))

    def _count(self, kind: str, query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        words = [query.state_location, run_id]
        for each in instances:
            words += [str(each.operator), str(each.partition), each.store, each.executor.host, each.executor.id]
        return int(self._ask(kind, *words)[0])

    def _ask(self, kind: str, *about: str) -> list[str]:
        """Ask, and wait. Raises ``JvmError``, and ``TimeoutError`` if no answer comes."""
        number = str(next(self._numbers))
        answer: Future[list[str]] = Future()
        self._asked[number] = answer
        try:
            self.send("ask", number, kind, *about)
            return answer.result(_ANSWER_SECONDS)
        finally:
            del self._asked[number]
