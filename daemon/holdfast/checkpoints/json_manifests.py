"""Manifests in JSON: untrusted text into typed structures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from holdfast.checkpoints.manifests import BrokenError, Trouble

_T = TypeVar("_T")


_MOST_VALUES = 2**19
"""The limit of values in one text. A value of one byte may take 200 in memory. A commit of 58,000 partitions with eight
stores each has so many."""


def decoder(kind: type[_T], what: str) -> Callable[[bytes], _T]:
    """Return what makes a ``kind`` of a text. It raises ``BrokenError``, which says ``what`` the text was to be.

    Modules make theirs when they are imported: msgspec 0.22 crashes when two threads meet a type for the first time.
    """
    decode = msgspec.json.Decoder(kind).decode

    def decoded(text: bytes) -> _T:
        if sum(text.count(mark) for mark in (b",", b"[", b"{")) > _MOST_VALUES:
            raise BrokenError(Trouble.TOO_LARGE, f"{what}: more than {_MOST_VALUES} values")
        try:
            return decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise BrokenError(Trouble.MALFORMED, f"{what}: {problem}") from None
        except RecursionError:
            raise BrokenError(Trouble.TOO_DEEP, what) from None

    return decoded
