"""Operations that run without a task until they have to wait.

Most requests wait for nothing. Their operations are stepped where the request was read, outside of any task, because a task
costs ten times as much as they do. An operation that comes to a wait announces it (``before_waiting``): it is suspended
there, and goes on in a task. So each operation is written once, and runs from top to bottom once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
_SUSPENDED = object()


class Suspended(Exception):  # noqa: N818 it is no error
    """The operation has come to a wait. It goes on in a task (``resumed``)."""

    def __init__(self, operation: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self.operation = operation


class _Stepping:
    """The note that an operation is being stepped. It is in an object: changing a class empties Python's caches for it."""

    __slots__ = ("is_on",)

    def __init__(self) -> None:
        self.is_on = False


_stepping = _Stepping()


@coroutine
def before_waiting() -> Generator[object, None, None]:
    """Await this before anything that waits, in an operation that may run outside of a task. Other requests may run then."""
    if _stepping.is_on:
        yield _SUSPENDED


def step(operation: Coroutine[Any, Any, _T]) -> _T:
    """Run an operation and return its result. Raises ``Suspended`` if it comes to a wait, and what the operation raises."""
    _stepping.is_on = True
    try:
        trap = operation.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    finally:
        _stepping.is_on = False
    if trap is not _SUSPENDED:
        operation.close()
        raise RuntimeError("an operation waits without having said so")
    raise Suspended(operation)


def resumed_once(
    operation: Coroutine[Any, Any, _T], begin: Callable[[], Coroutine[Any, Any, _T]]
) -> Callable[[], Awaitable[_T]]:
    """Return a function to await that goes on with a suspended operation; called again, it calls ``begin`` for a new one."""
    suspended = [operation]
    return lambda: resumed(suspended.pop()) if suspended else begin()


@coroutine
def resumed(operation: Coroutine[Any, Any, _T]) -> Generator[Any, Any, _T]:
    """Continue a suspended operation in the running task."""
    result: _T = yield from operation
    return result


@coroutine
def marked(operation: Coroutine[Any, Any, _T], mark: Callable[[int], None], number: int) -> Generator[Any, Any, _T]:
    """Carry out an operation in the running task: ``mark`` gets ``number`` as each of its steps begins, and 0 at its end.

    Between its steps it waits, and what it waits for is not its doing.
    """
    step: Callable[[Any], Any] = operation.send
    argument: object = None
    while True:
        mark(number)
        try:
            trap = step(argument)
        except StopIteration as end:
            result: _T = end.value
            return result
        finally:
            mark(0)
        try:
            argument = yield trap
            step = operation.send
        except GeneratorExit:
            operation.close()
            raise
        except BaseException as problem:  # noqa: BLE001 it is the operation's
            step, argument = operation.throw, problem
