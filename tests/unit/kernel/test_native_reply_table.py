"""The C module's table of what it answers by itself, whose numbers users choose."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from holdfast.kernel.native_module import NATIVE_MODULE
from tests.mount.test_cached_pages import needs_c_module

_MULTIPLIER = 0x9E37_79B9_7F4A_7C15
"""The multiplier of Fibonacci hashing, which an attacker tries first."""
_COUNT = 2000
_MOST_TIMES_AS_LONG = 20
"""A busy machine may take longer for one of two equal things; places that meet took 500 times as long."""
_NUMBERS = {
    "multiples of a page": [number << 12 for number in range(1, _COUNT)],
    "high bits alone": [number << 40 for number in range(1, _COUNT)],
    "one place by the golden ratio": [number * pow(_MULTIPLIER, -1, 1 << 64) % (1 << 64) for number in range(1, _COUNT)],
}


def seconds_to_fill_and_empty(nodes: Sequence[int]) -> float:
    """Return the processor time for adding and removing replies about these nodes."""
    began = time.thread_time()
    for node in nodes:
        NATIVE_MODULE.add_native_reply(node, 0, 0, 0, 0)
    for node in nodes:
        NATIVE_MODULE.remove_native_reply(node)
    return time.thread_time() - began


@needs_c_module
@pytest.mark.parametrize("kind", _NUMBERS)
def test_no_choice_of_numbers_makes_the_table_slow(kind: str) -> None:
    """Gain: whoever closes a file makes the event loop move thousands of replies about others."""
    usual = seconds_to_fill_and_empty(range(1, _COUNT))
    assert seconds_to_fill_and_empty(_NUMBERS[kind]) < _MOST_TIMES_AS_LONG * usual
