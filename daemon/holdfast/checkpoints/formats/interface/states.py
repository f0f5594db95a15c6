"""State by partitions: what a file belongs to, and what a query's own metadata says of its stateful operators."""

from __future__ import annotations

from typing import NamedTuple


class StateStore(NamedTuple):
    """One state store of a query: ``location`` is the query's checkpoint location, ``name`` the store's among its
    partition's.
    """

    location: bytes
    operator: int
    partition: int
    name: bytes


class StateFile(NamedTuple):
    """A file belongs to ``store``; ``version`` is the state version that it brings, None if several share the file.

    ``directory`` has all files of the store, and possibly those of others.
    """

    store: StateStore
    version: int | None
    directory: bytes


class StatefulOperator(NamedTuple):
    """An operator of a query that keeps state: how many partitions there are, and which stores each of them has."""

    operator: int
    partitions: int
    stores: tuple[bytes, ...]
