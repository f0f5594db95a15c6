"""The state that a file belongs to, by its name in its store; and a query's stateful operators, by its metadata.

Sources: S ``StateStoreId``, ``OperatorStateMetadataV1`` and ``V2`` (Spark 4.3; the first version is the same since 3.5).
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from holdfast.checkpoints.formats.interface import StateFile, StatefulOperator, StateStore
from holdfast.checkpoints.formats.spark.names import SparkKind, SparkName, parse_spark

_STATE = re.compile(rb"(?:(?P<location>.+)/)?(?P<name>state/[0-9]+/[0-9]+/.+)", re.DOTALL)
_OPERATOR = re.compile(rb"state/(?P<operator>[0-9]{1,10})/_metadata/(?:metadata|v2/[0-9]+)")
_SHARED = (SparkKind.SST, SparkKind.ARCHIVED_LOG)
_MOST = 2**31 - 1  # Java's int


class _Store(msgspec.Struct):
    storeName: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]  # noqa: N815 Spark's name
    numPartitions: Annotated[int, msgspec.Meta(ge=1, le=_MOST)]  # noqa: N815 Spark's name


class _Operator(msgspec.Struct):
    stateStoreInfo: Annotated[list[_Store], msgspec.Meta(min_length=1, max_length=64)]  # noqa: N815 Spark's name


_decode = msgspec.json.Decoder(_Operator).decode


def state_file(name: bytes) -> StateFile | None:
    """Say which state the file ``name``, relative to its store, belongs to; None if it is no state, or temporary."""
    if b"state/" not in name:
        return None
    match = _STATE.fullmatch(name)
    parsed = parse_spark(match["name"]) if match else None
    if match is None or not isinstance(parsed, SparkName) or parsed.layers or parsed.store is None:
        return None
    if parsed.kind is SparkKind.STATE_SCHEMA:
        return None
    store = StateStore(match["location"] or b"", parsed.store.operator, parsed.store.partition, parsed.store.store)
    is_shared = parsed.kind in _SHARED
    return StateFile(store, None if is_shared else parsed.number, name.rsplit(b"/", 2 if is_shared else 1)[0])


def stateful_operator(name: bytes, data: bytes) -> StatefulOperator | None:
    """Read the metadata of an operator, the file ``name`` of a checkpoint location; None if that is another file or
    damaged.
    """
    match = _OPERATOR.fullmatch(name)
    if match is None:
        return None
    _, _, text = data.partition(b"\n")  # the first line is the version
    try:
        stores = _decode(text).stateStoreInfo
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    names = tuple(dict.fromkeys(store.storeName.encode() for store in stores))
    return StatefulOperator(int(match["operator"]), stores[0].numPartitions, names)
