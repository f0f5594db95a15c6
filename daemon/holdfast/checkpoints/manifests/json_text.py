"""JSON that nobody vouches for, into typed structures."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from holdfast.checkpoints.manifests.results import BrokenError, Trouble

_T = TypeVar("_T")


def decoded(text: bytes, kind: type[_T], what: str) -> _T:
    """Return ``text`` as a ``kind``. Raises ``BrokenError``, which says ``what`` it is."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise BrokenError(Trouble.MALFORMED, f"{what}: {problem}") from None
    except RecursionError:
        raise BrokenError(Trouble.TOO_DEEP, what) from None
