"""Manifests as tasks read them: from the store, by names that are relative to a root, with patience."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from holdfast.checkpoints.hooks.streams import read_object
from holdfast.checkpoints.manifests import Manifest
from holdfast.checkpoints.reachability import Wanted
from holdfast_spark.stores import StoreAddress, key_below, patiently

Read: TypeAlias = Callable[[Wanted], Manifest]
"""Reads one manifest. Raises ``RemoteError`` when the store does not answer for long."""


def reader_below(address: StoreAddress, root: str) -> Read:
    """Open the store, and return who reads manifests whose names are relative to ``root`` of it; threads may share it."""
    store = address.open()
    return lambda wanted: patiently(partial(read_object, store, key_below(root, wanted.name.decode()), wanted))
