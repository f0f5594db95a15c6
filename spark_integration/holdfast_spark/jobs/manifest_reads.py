"""Manifests as tasks read them: from the store, by names that are relative to a root, with patience."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

from holdfast.checkpoints.manifests import Manifest
from holdfast.checkpoints.reachability import Examination, Wanted
from holdfast.checkpoints.sweeps.object_stream import read_object
from holdfast_spark.stores import StoreAddress, in_parallel, key_below, patiently

_T = TypeVar("_T")

Read: TypeAlias = Callable[[Wanted], Manifest]
"""Reads one manifest. Raises ``RemoteError`` when the store does not answer for long."""


def reader_below(address: StoreAddress, root: str) -> Read:
    """Open the store, and return a reader of manifests whose names are relative to ``root`` of it; threads may share it."""
    store = address.open()
    return lambda wanted: patiently(partial(read_object, store, key_below(root, wanted.name.decode()), wanted))


def examined(examination: Examination[_T], read: Read) -> _T:
    """Carry an examination through, and return its result. Raises as ``read`` does."""
    while wanted := examination.wanted:
        answers = in_parallel(read, wanted) if len(wanted) > 1 else map(read, wanted)
        examination.supply({each.name: answer for each, answer in zip(wanted, answers, strict=True)})
    return examination.result
