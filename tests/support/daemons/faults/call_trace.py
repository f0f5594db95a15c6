"""A trace of the functions of Holdfast that the event loop calls, request by request. It is no fault: it only watches.

Each request is a line of JSON: the name of the operation, and of each call the depth and the function. What the loop does
between two requests is counted to the earlier one, and threads are not seen.
"""

from __future__ import annotations

import dis
import inspect
import json
import os
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import TextIO

import holdfast
from holdfast.kernel import Opcode

CALLS = "HOLDFAST_TEST_CALLS"
"""Names the file that gets the trace."""
_PACKAGE = Path(holdfast.__file__).parent
_RESUMABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_AT_ONCE = "fs/fuse/immediate_replies.py ImmediateReplies.answer"
_BY_TASK = "fs/fuse/error_replies.py replies.<locals>.replying"
_LATER = "fs/fuse/later_replies.py LaterReplies._reply"
_BEGINS = bytes([dis.opmap["RESUME"], 0])


class Tracer:
    """A profile function (``sys.setprofile``)."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._operation = ""
        self._request = 0
        self._calls: list[tuple[int, str]] = []
        self._depth = 0
        self._top = 0
        """The depth at which the request under way is answered."""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call or a return of a function of Holdfast's."""
        if event not in ("call", "return"):
            return
        name = name_of(frame.f_code)
        if not name:
            return
        if event == "return":
            self._depth -= 1
            return
        if not _is_resumed(frame):
            if name in (_AT_ONCE, _BY_TASK, _LATER):
                self._top = self._depth
                self._begin(*_request_of(name, frame))
            self._calls.append((max(0, self._depth - self._top), name))
        self._depth += 1

    def _begin(self, operation: str, request: int) -> None:
        """Begin a request, unless it is the one under way, which could not be answered at once."""
        if request == self._request:
            return
        if self._operation:
            self._output.write(json.dumps({"operation": self._operation, "calls": self._calls}) + "\n")
            self._output.flush()
        self._operation, self._request, self._calls = operation, request, []


@cache
def name_of(code: CodeType) -> str:
    """Return the module and the function of ``code``; nothing if it is not Holdfast's."""
    path = Path(code.co_filename)
    if not path.is_relative_to(_PACKAGE):
        return ""
    return f"{path.relative_to(_PACKAGE)} {code.co_qualname}"


def _is_resumed(frame: FrameType) -> bool:
    """Say whether a coroutine or generator goes on, rather than begins."""
    code = frame.f_code
    return bool(code.co_flags & _RESUMABLE) and code.co_code[frame.f_lasti : frame.f_lasti + 2] != _BEGINS


def _request_of(name: str, frame: FrameType) -> tuple[str, int]:
    """Return the operation of the request that is answered by this call, and its number."""
    found = frame.f_locals
    if name == _AT_ONCE:
        return Opcode(found["opcode"]).name.lower(), found["unique"]
    if name == _LATER:
        return found["observation"].opcode.name.lower(), found["request"]
    return found["operation"], found["self"].observer._connection.request()


def trace_calls() -> None:
    """Write the trace into the file that ``CALLS`` names."""
    sys.setprofile(Tracer(open(os.environ[CALLS], "w")))  # noqa: SIM115 until the process ends
