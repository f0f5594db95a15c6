"""Deleting many objects: what is deleted although others are refused, and when it is given up.

A refusal of one key keeps no other from being deleted. A store that does not answer, or refuses whatever it is asked for, is
not asked for each of the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Generic, TypeVar

from holdfast.errors import HoldfastError, RemoteError, RemoteRefusedError
from holdfast.remote.life_signs import sign_of_life

_MOST_UNANSWERED = 3
_T = TypeVar("_T")


def says_nothing_of_others(problem: HoldfastError) -> bool:
    """Say whether a request for many keys that failed with ``problem`` may succeed for some of them."""
    return not problem.transient and not _is_of_store(problem)


def _is_of_store(problem: HoldfastError) -> bool:
    """Say whether the store refuses whatever it is asked for."""
    return isinstance(problem, RemoteRefusedError) and problem.of_store


def delete_divided(keys: Sequence[str], delete: Callable[[Sequence[str]], None]) -> None:
    """Delete keys by ``delete``; halve what is refused until the refused keys stand alone, and raise the first error.

    A request that was carried out for the others is not divided.
    """
    try:
        delete(keys)
        return
    except HoldfastError as problem:
        is_partial = isinstance(problem, RemoteError) and problem.is_partial
        if len(keys) <= 1 or is_partial or not says_nothing_of_others(problem):
            raise
    middle = len(keys) // 2
    problems = []
    for half in (keys[:middle], keys[middle:]):
        try:
            delete_divided(half, delete)
        except HoldfastError as problem:
            problems.append(problem)
            if not says_nothing_of_others(problem):
                break
    if problems:
        raise problems[0]


def delete_each(deletions: Sequence[_T], delete: Callable[[_T], None], at_once: int = 1) -> None:
    """Call ``delete`` for each key, or each batch of keys, and raise the first error at the end.

    ``at_once`` calls are made at the same time, in threads if that is more than one. This gives up early after a few
    unanswered requests, and after one that the store refuses whatever its key is.
    """
    work = _Deletions(deletions, delete)
    threads = min(at_once, len(deletions))
    if threads <= 1:
        work.run()
    else:
        with ThreadPoolExecutor(threads, "deletions") as pool:
            for running in [pool.submit(copy_context().run, work.run) for _ in range(threads)]:
                running.result()
    if work.problems:
        raise work.problems[0]


class _Deletions(Generic[_T]):
    """Deletions that one or several threads take turns with. ``problems``: what has failed, in this order."""

    def __init__(self, deletions: Sequence[_T], delete: Callable[[_T], None]) -> None:
        self.problems: list[HoldfastError] = []
        self._left = iter(deletions)
        self._delete = delete
        self._lock = threading.Lock()
        self._unanswered = 0
        self._is_over = False

    def run(self) -> None:
        """Take deletions until there are none left, or they are given up."""
        while True:
            with self._lock:
                each = next(self._left, None) if not self._is_over else None
            if each is None:
                return
            try:
                sign_of_life()
                self._delete(each)
            except HoldfastError as problem:
                self._failed(problem)

    def _failed(self, problem: HoldfastError) -> None:
        with self._lock:
            self.problems.append(problem)
            self._unanswered += problem.transient
            self._is_over |= self._unanswered >= _MOST_UNANSWERED or _is_of_store(problem)
