"""The tree of errors: what a system call ends with, what logs and metrics are keyed by."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError, RemoteError, RemoteUnavailableError


def kinds(root: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


ALL = [kind for kind in kinds() if kind.__module__ == errors.__name__]  # a client repeats what its daemon said


def test_codes_are_unique_and_fit_for_metrics() -> None:
    codes = [kind.code for kind in ALL]
    assert len(set(codes)) == len(codes)
    assert all(code.replace("-", "").isalpha() and code.islower() for code in codes)


@pytest.mark.parametrize("kind", ALL)
def test_each_has_an_errno_that_the_kernel_knows(kind: type[HoldfastError]) -> None:
    assert kind.errno in errno.errorcode
    assert kind.__doc__


def test_only_a_store_that_does_not_answer_is_worth_asking_again() -> None:
    assert [kind for kind in ALL if kind.transient] == [RemoteUnavailableError]
    assert issubclass(RemoteUnavailableError, RemoteError)
