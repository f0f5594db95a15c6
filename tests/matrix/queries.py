"""The matrix' queries: what each computes from one stream of rows, and what must come of it. Runs under each Spark.

A file of input has rows ``k, v, t``: six keys that come in every file and one that is new, the number of the file, a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

KEYS = 6
_NEW_KEYS_FROM = 100
_MINUTES_A_WINDOW = 2
SCHEMA = "k int, v int, t timestamp"

Row = tuple[Any, ...]


class Input(NamedTuple):
    """A row of input; ``minute`` is its time."""

    key: int
    value: int
    minute: int


def rows_of(number: int) -> list[Input]:
    """Return the rows of a file of input."""
    return [Input(key, number, number) for key in (*range(KEYS), _NEW_KEYS_FROM + number)]


def put_input(directory: Path) -> None:
    """Put the next file of input into ``directory``, whole at once."""
    number = len(list(directory.glob("[0-9]*.csv")))
    lines = (f"{row.key},{row.value},2026-01-01T00:{row.minute:02}:00Z\n" for row in rows_of(number))
    hidden = directory / f".{number}"
    hidden.write_text("".join(lines))
    hidden.rename(directory / f"{number}.csv")


@dataclass(frozen=True)
class Kind:
    """A kind of query. ``key_columns`` is how many columns of a result name what the others say the latest of; 0: a result
    is never replaced.
    """

    name: str
    query: Callable[[DataFrame], DataFrame]
    mode: str
    key_columns: int
    expected: Callable[[list[Input]], Counter[Row]]
    since: tuple[int, int] = (3, 5)
    settings: tuple[tuple[str, str], ...] = ()
    has_file_sink: bool = False


def _aggregation(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(f.count("*").alias("n"), f.sum("v").alias("s"))


def _windows(rows: DataFrame) -> DataFrame:
    counted = rows.groupBy(f.window("t", f"{_MINUTES_A_WINDOW} minutes"), "k").count()
    return counted.select(f.minute("window.start").alias("start"), "k", "count")


def _session_windows(rows: DataFrame) -> DataFrame:
    counted = rows.groupBy(f.session_window("t", "90 seconds"), "k").count()
    return counted.select("k", f.minute("session_window.start").alias("start"), "count")


def _deduplication(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["k"]).select("k")


def _deduplication_in_watermark(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicatesWithinWatermark(["k"]).select("k")


def _join(rows: DataFrame) -> DataFrame:
    other = rows.selectExpr("k AS k2", "v AS v2", "t AS t2")
    return rows.join(other, f.expr("k = k2 AND t2 BETWEEN t AND t + INTERVAL 1 HOUR")).select("k", "v", "v2")


def _two_operators(rows: DataFrame) -> DataFrame:
    counted = rows.dropDuplicates(["k", "t"]).groupBy(f.window("t", f"{_MINUTES_A_WINDOW} minutes")).count()
    return counted.select(f.minute("window.start").alias("start"), "count")


def _pandas_with_state(rows: DataFrame) -> DataFrame:
    def count(key: Any, frames: Iterator[Any], state: GroupState) -> Iterator[Any]:
        import pandas  # type: ignore[import-untyped]

        seen = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((seen,))
        yield pandas.DataFrame({"k": [key[0]], "n": [seen]})

    grouped = rows.groupBy("k")
    return grouped.applyInPandasWithState(count, "k int, n long", "n long", "update", GroupStateTimeout.NoTimeout)


def _transform_with_state(rows: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # since 4.0

    class Seen(StatefulProcessor):
        """Keeps a value, a list and a map, each in a column family of its own."""

        def init(self, handle: Any) -> None:
            self.value = handle.getValueState("value", "n long")
            self.list = handle.getListState("list", "v int")
            self.map = handle.getMapState("map", "v int", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any = None) -> Iterator[Any]:  # noqa: N802, N803
            import pandas

            seen = self.value.get()[0] if self.value.exists() else 0
            for frame in rows:
                for value in frame["v"]:
                    seen += 1
                    self.list.appendValue((int(value),))
                    self.map.updateValue((int(value),), (seen,))
            self.value.update((seen,))
            listed, mapped = len(list(self.list.get())), len(list(self.map.keys()))
            yield pandas.DataFrame({"k": [key[0]], "n": [seen], "listed": [listed], "mapped": [mapped]})

        def close(self) -> None:
            """Nothing is open."""

    grouped: Any = rows.groupBy("k")
    made: DataFrame = grouped.transformWithStateInPandas(Seen(), "k int, n long, listed long, mapped long", "Update", "None")
    return made


def _sums(rows: list[Input]) -> Counter[Row]:
    keys = {row.key for row in rows}
    of_key = {key: [row.value for row in rows if row.key == key] for key in keys}
    return Counter((key, len(values), sum(values)) for key, values in of_key.items())


def _window(row: Input) -> int:
    return row.minute // _MINUTES_A_WINDOW * _MINUTES_A_WINDOW


def _counts(*key: Callable[[Input], int], times: int = 1) -> Callable[[list[Input]], Counter[Row]]:
    def expected(rows: list[Input]) -> Counter[Row]:
        counts = Counter(tuple(part(row) for part in key) for row in rows)
        return Counter((*name, *[count] * times) for name, count in counts.items())

    return expected


def _distinct_keys(rows: list[Input]) -> Counter[Row]:
    return Counter((key,) for key in {row.key for row in rows})


def _pairs(rows: list[Input]) -> Counter[Row]:
    return Counter(
        (one.key, one.value, other.value)
        for one, other in product(rows, rows)
        if one.key == other.key and one.minute <= other.minute
    )


def _sessions(rows: list[Input]) -> Counter[Row]:
    keys = {row.key for row in rows}
    return Counter(
        (key, min(row.minute for row in rows if row.key == key), sum(row.key == key for row in rows)) for key in keys
    )


_JOIN_OF_FORMAT_3 = (("spark.sql.streaming.join.stateFormatVersion", "3"),)

KINDS = (
    Kind("aggregation", _aggregation, "update", 1, _sums),
    Kind("windows", _windows, "update", 2, _counts(_window, lambda row: row.key)),
    Kind("session windows", _session_windows, "complete", 1, _sessions),
    Kind("dropDuplicates", _deduplication, "append", 0, _distinct_keys),
    Kind("dropDuplicatesWithinWatermark", _deduplication_in_watermark, "append", 0, _distinct_keys),
    Kind("join", _join, "append", 0, _pairs),
    Kind("join, state format 3", _join, "append", 0, _pairs, since=(4, 1), settings=_JOIN_OF_FORMAT_3),
    Kind("two operators", _two_operators, "update", 1, _counts(_window)),
    Kind("applyInPandasWithState", _pandas_with_state, "update", 1, _counts(lambda row: row.key)),
    Kind("transformWithState", _transform_with_state, "update", 1, _counts(lambda row: row.key, times=3), since=(4, 0)),
    Kind("file sink", _deduplication, "append", 0, _distinct_keys, has_file_sink=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}


def results_of(kind: Kind, output: Path) -> Counter[Row]:
    """Return what the query has come to: of each key the latest result, or all results. Each batch left a file."""
    latest: dict[object, Row] = {}
    every: list[Row] = []
    for path in sorted(output.glob("*.json"), key=lambda path: int(path.stem)):
        for row in map(tuple, json.loads(path.read_text())):
            latest[row[: kind.key_columns]] = row
            every.append(row)
    return Counter(latest.values() if kind.key_columns else every)


def difference(kind: Kind, arrived: Path, results: Counter[Row]) -> str:
    """Say how the results differ from what the input in ``arrived`` must come to; "" where they don't."""
    numbers = sorted(int(path.stem) for path in arrived.glob("[0-9]*.csv"))
    expected = kind.expected([row for number in numbers for row in rows_of(number)])
    if results == expected:
        return ""
    missing, surplus = expected - results, results - expected
    return f"another answer: missing {sorted(missing.items())[:3]}, too much {sorted(surplus.items())[:3]}"
