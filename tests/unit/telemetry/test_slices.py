"""Long work that lets others have their turn."""

from __future__ import annotations

import trio

from holdfast.telemetry.slices import Slices


async def test_others_have_their_turn_once_a_slice_is_over_and_not_before() -> None:
    turns: list[int] = []

    async def take_turns() -> None:
        while True:
            turns.append(len(turns))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        slices = Slices()
        nursery.start_soon(take_turns)
        pieces = 0
        while len(turns) < 3:
            pieces += 1
            await slices.pause()
        nursery.cancel_scope.cancel()
    assert pieces > len(turns), "there are many pieces in a slice"
