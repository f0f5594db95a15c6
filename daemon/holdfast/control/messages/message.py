"""The base of all messages, and the refusal."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class Failure(Message, frozen=True):
    """The reason of a refusal: a stable code, the errno, and a sentence that says what to do."""

    code: str
    errno: int
    message: str
