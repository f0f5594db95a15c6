"""The mark that tells the next daemon which request the event loop executed when this one ended.

The C module sets it while it answers, and when it hands a request to pyfuse3. From there on a task executes the request:
here each of the task's steps is marked. Between its steps it waits, and what it waits for is not its doing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse.operation_times import name_of
from holdfast.kernel import Connection, Opcode
from holdfast.telemetry import EventLog

_log = logging.getLogger("holdfast.fs")
_T = TypeVar("_T")


def mark_execution(base: Foundation, connection: Connection) -> None:
    """Mark which request is executed, and refuse those that have ended earlier daemons."""
    mark = base.parts.session.executed
    connection.mark_execution(mark.word, mark.refused(), partial(_tell, base.parts.events))


def _tell(events: EventLog, opcode: int, _: int, node_id: int, uid: int, __: int, pid: int, ___: bytes) -> None:
    """Tell the operator of a request that was refused. Its node is not looked up: that may be what ended daemons."""
    operation = name_of(Opcode(opcode)) if opcode in list(Opcode) else str(opcode)
    _log.warning(
        "%s of inode %d by user %d (process %d) is refused: daemons have ended during it", operation, node_id, uid, pid
    )
    events.emit("request-refused", operation=operation, inode=node_id, uid=uid, pid=pid)


@coroutine
def executed(work: Coroutine[Any, Any, _T], mark: Callable[[int], None], number: int) -> Generator[Any, Any, _T]:
    """Do ``work`` for the request ``number``, and mark each of its steps."""
    step: Callable[[Any], Any] = work.send
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
            step = work.send
        except GeneratorExit:
            work.close()
            raise
        except BaseException as problem:  # noqa: BLE001 it is the work's
            step, argument = work.throw, problem
