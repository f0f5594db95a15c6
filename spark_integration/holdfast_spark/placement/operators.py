"""The operators of a query that keep state, by the metadata in its checkpoint or by its plan.

The plan serves for a query that is new, or of Spark 3.5, which writes no metadata of operators. It is read as Spark prints
it. If a guess is wrong, some partitions of the first start are where Spark puts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.formats.interface import StatefulOperator

DEFAULT_STORE = b"default"
JOIN_STORES = (b"left-keyToNumValues", b"left-keyWithIndexToValue", b"right-keyToNumValues", b"right-keyWithIndexToValue")
"""S ``SymmetricHashJoinStateManager.allStateStoreNames``."""
_LINE = re.compile(r"(?P<tree>[ :+-]*)(?P<streams>~?)(?P<node>[A-Za-z]+)")
_LEVEL = 3  # characters by which a child is indented
_SOURCE = "Streaming"  # StreamingRelation, StreamingRelationV2, StreamingExecutionRelation, StreamingDataSourceV2Relation
_LARGEST_BYTES = 2**20
_KEEP_STATE = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "TransformWithState",
        "TransformWithStateInPandas",
        "TransformWithStateInPySpark",
    }
)


def operators_of_checkpoint(location: Path) -> list[StatefulOperator]:
    """Read the metadata below ``location``, in the mount. Empty for a query that is new. Raises ``OSError``."""
    found = []
    offsets = _newest_offsets(location)
    for directory in sorted((location / "state").glob("*/_metadata")):
        for file in _newest_first(directory):
            with file.open("rb") as stream:
                data = stream.read(_LARGEST_BYTES)
            operator = FORMATS.stateful_operator(str(file.relative_to(location)).encode(), data)
            if operator is not None:
                partitions = FORMATS.partitions_now(operator.partitions, _partitions_there(directory.parent), offsets)
                found.append(operator._replace(partitions=partitions))
                break
    return found


def operators_of_plan(plan: str, partitions: int) -> list[StatefulOperator]:
    """Return the operators of a query's analyzed plan, as Spark prints it, with ``partitions`` each.

    Spark numbers them from the plan's top.
    """
    stores = [stores for stores in _stores_of_nodes(plan) if stores]
    return [StatefulOperator(number, partitions, each) for number, each in enumerate(stores)]


def partitions_of_checkpoint(location: Path) -> int:
    """Return how many partitions the state has by what is below ``location``, beside metadata; 0 if nothing says."""
    there = max((_partitions_there(operator) for operator in (location / "state").glob("*")), default=0)
    return FORMATS.partitions_now(0, there, _newest_offsets(location))


def _newest_first(directory: Path) -> Iterator[Path]:
    """Yield the files of an operator's metadata: those of the second version are numbered by the batch that wrote them."""
    with suppress(FileNotFoundError):
        yield from sorted(
            (file for file in (directory / "v2").iterdir() if file.name.isdecimal()), key=_number, reverse=True
        )
    if (directory / "metadata").exists():
        yield directory / "metadata"


def _partitions_there(operator: Path) -> int:
    return max((int(each.name) + 1 for each in operator.iterdir() if each.name.isdecimal()), default=0)


def _newest_offsets(location: Path) -> bytes:
    """Return the bytes of the newest offsets; empty if there are none."""
    with suppress(FileNotFoundError):
        newest = max((file for file in (location / "offsets").iterdir() if file.name.isdecimal()), key=_number, default=None)
        if newest is not None:
            with newest.open("rb") as stream:
                return stream.read(_LARGEST_BYTES)
    return b""


def _number(file: Path) -> int:
    return int(file.name)


def _stores_of_nodes(plan: str) -> Iterator[tuple[bytes, ...]]:
    lines = [match for match in map(_LINE.match, plan.splitlines()) if match]
    for index, line in enumerate(lines):
        if line["node"] in _KEEP_STATE and _streams(lines, index):
            yield (DEFAULT_STORE,)
        elif line["node"] == "Join" and all(_streams(lines, child) for child in _children(lines, index)):
            yield JOIN_STORES


def _streams(lines: list[re.Match[str]], index: int) -> bool:
    """Say whether a node is of a stream: Spark marks it, but for 3.5, or it has a source of a stream below it."""
    return bool(lines[index]["streams"]) or any(lines[below]["node"].startswith(_SOURCE) for below in _below(lines, index))


def _below(lines: list[re.Match[str]], index: int) -> Iterator[int]:
    depth = len(lines[index]["tree"])
    for below in range(index + 1, len(lines)):
        if len(lines[below]["tree"]) <= depth:
            return
        yield below


def _children(lines: list[re.Match[str]], index: int) -> Iterator[int]:
    depth = len(lines[index]["tree"]) + _LEVEL
    return (below for below in _below(lines, index) if len(lines[below]["tree"]) == depth)
