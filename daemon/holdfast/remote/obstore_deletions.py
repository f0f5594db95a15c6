"""Deletions through obstore: in bulk, divided where one key spoils the request for the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property, partial

import obstore
from obstore.store import ObjectStore, S3Store

from holdfast.errors import HoldfastError, NameNotStorableError, ObjectMissingError
from holdfast.remote.many_deletions import delete_divided, delete_each, says_nothing_of_others

_BATCH = 256  # Azure's limit; obstore sends no more than one request of several, if it fails
_S3_BATCH = 1000


class ObstoreDeletions:
    """Deletes from one store, of keys that it can have. ``request`` is the context of a request to it, by its name.

    ``without_bulk`` makes the same store anew, so that it deletes each object by a request of its own.
    """

    def __init__(
        self,
        store: ObjectStore,
        request: Callable[[str], AbstractContextManager[None]],
        without_bulk: Callable[[], ObjectStore] | None,
    ) -> None:
        self._store = store
        self._request = request
        self._without_bulk = without_bulk

    def delete(self, keys: Sequence[str]) -> None:
        """Do as ``RemoteStore.delete``."""
        most, delete = _BATCH, self._delete_few
        if isinstance(self._store, S3Store):
            most, delete = _S3_BATCH, partial(delete_divided, delete=self.delete_at_once)
        delete_each([list(keys[start : start + most]) for start in range(0, len(keys), most)], delete)

    def _delete_few(self, keys: list[str]) -> None:
        """Delete keys that go in one request. Azure's answer for the first that is missing or refused hides the others'."""
        try:
            self.delete_at_once(keys)
        except HoldfastError as problem:
            if len(keys) == 1 or not says_nothing_of_others(problem):
                raise
            delete_each(keys, lambda key: self.delete_at_once([key]))

    def delete_at_once(self, keys: Sequence[str]) -> None:
        """Do as ``RemoteStore.delete_at_once``."""
        if not keys:
            return
        try:
            self._delete(self._store, keys)
        except (ObjectMissingError, NameNotStorableError):  # there is no such object
            if len(keys) > 1:  # and what else was deleted is unknown
                raise
        except HoldfastError as problem:
            if len(keys) > 1 or self._one_by_one is None or not says_nothing_of_others(problem):
                raise
            with suppress(ObjectMissingError):
                self._delete(self._one_by_one, keys)

    def _delete(self, store: ObjectStore, keys: Sequence[str]) -> None:
        with self._request(f"DELETE of {len(keys)} objects" if len(keys) > 1 else f"DELETE {keys[0]}"):
            obstore.delete(store, keys)

    @cached_property
    def _one_by_one(self) -> ObjectStore | None:
        """The store with deletions that have no body: S3's bulk deletion has its names in XML, which can't hold all."""
        return self._without_bulk() if self._without_bulk is not None else None
