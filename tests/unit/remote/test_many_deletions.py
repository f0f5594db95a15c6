"""Deletions of many objects: which are tried after one has failed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextvars import copy_context

import pytest

from holdfast.errors import HoldfastError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote.life_signs import CallLife
from holdfast.remote.many_deletions import delete_divided, delete_each

KEYS = [str(number) for number in range(100)]
AT_ONCE = 8


class Store:
    """Notes what it is asked to delete, and fails as ``problems`` says."""

    def __init__(self, **problems: HoldfastError) -> None:
        self.problems = problems
        self.asked: list[str] = []

    def delete(self, key: str) -> None:
        self.asked.append(key)
        if problem := self.problems.get(f"key_{key}", self.problems.get("all")):
            raise problem

    def delete_several(self, keys: Sequence[str]) -> None:
        self.asked.append(",".join(keys))
        for key in keys:
            if problem := self.problems.get(f"key_{key}"):
                raise problem


@pytest.mark.parametrize("at_once", [1, AT_ONCE])
def test_one_that_is_refused_keeps_no_other_from_being_deleted(at_once: int) -> None:
    store = Store(key_5=RemoteRefusedError("not this one", of_store=False))
    with pytest.raises(RemoteRefusedError, match="not this one"):
        delete_each(KEYS, store.delete, at_once)
    assert sorted(store.asked) == sorted(KEYS)


def test_a_store_that_refuses_whatever_it_is_asked_is_not_asked_again() -> None:
    store = Store(key_5=RemoteRefusedError("not you"))
    with pytest.raises(RemoteRefusedError, match="not you"):
        delete_each(KEYS, store.delete)
    assert store.asked == KEYS[:6]


def test_a_store_that_does_not_answer_is_not_asked_for_each() -> None:
    store = Store(all=RemoteUnavailableError("no answer"))
    with pytest.raises(RemoteUnavailableError):
        delete_each(KEYS, store.delete)
    assert store.asked == KEYS[:3]


@pytest.mark.parametrize("problem", [RemoteRefusedError("not you"), RemoteUnavailableError("no answer")])
def test_several_at_once_are_given_up_too(problem: HoldfastError) -> None:
    store = Store(all=problem)
    with pytest.raises(type(problem)):
        delete_each(KEYS, store.delete, AT_ONCE)
    assert len(store.asked) < 3 + AT_ONCE


def test_so_many_are_deleted_at_once() -> None:
    together = threading.Barrier(AT_ONCE)

    def delete(_: str) -> None:
        together.wait(60)

    delete_each(KEYS[: 3 * AT_ONCE], delete, AT_ONCE)


def test_a_call_that_was_given_up_deletes_no_more() -> None:
    store, life = Store(), CallLife()
    life.is_given_up = True
    with pytest.raises(RemoteUnavailableError, match="given up"):
        copy_context().run(life.lead, lambda: delete_each(KEYS, store.delete, AT_ONCE))
    assert store.asked == []


def test_a_request_for_several_is_divided_until_what_is_refused_stands_alone() -> None:
    store = Store(key_1=RemoteRefusedError("not this one", of_store=False))
    with pytest.raises(RemoteRefusedError):
        delete_divided(KEYS[:4], store.delete_several)
    assert store.asked == ["0,1,2,3", "0,1", "0", "1", "2,3"]


def test_a_request_for_several_is_not_divided_further_if_the_store_refuses_all() -> None:
    store = Store(key_0=RemoteRefusedError("not you"))
    with pytest.raises(RemoteRefusedError):
        delete_divided(KEYS[:4], store.delete_several)
    assert store.asked == ["0,1,2,3"]
