"""Who is about to create what."""

from __future__ import annotations

import pytest

from holdfast.fs.intents import Intents
from holdfast.zones import NameKind


@pytest.mark.parametrize(("thread", "is_known"), [(7, True), (0, False)])
def test_threads_that_have_no_number_here_are_nobody(thread: int, is_known: bool) -> None:
    intents = Intents(clock=lambda: 0.0)
    intents.created(b"offsets", NameKind.WRITE_ONCE, thread)
    assert intents.is_creating(b"offsets", b"1", NameKind.WRITE_ONCE, thread) is is_known
    assert not intents.is_creating(b"offsets", b"1", NameKind.WRITE_ONCE, 8)
