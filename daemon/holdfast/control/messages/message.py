"""The base of all messages, and the refusal."""

from __future__ import annotations

from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""A length of time that is given: as nanoseconds it is still a number of 64 bits."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class Failure(Message, frozen=True):
    """The reason of a refusal: a stable code, the errno, and a sentence that says what to do."""

    code: str
    errno: int
    message: str
