"""The samples that the page draws: fine ones for an hour, coarse ones for a day."""

from __future__ import annotations

from itertools import pairwise

import trio
from trio.testing import MockClock

from holdfast.control.messages import Sample
from holdfast.control.surveys import History


def sample() -> Sample:
    return Sample(
        time=trio.current_time(),
        hits=0,
        misses=0,
        bytes_fetched=0,
        bytes_uploaded=0,
        requests=0,
        files_evicted=0,
        cached_bytes=0,
        free_bytes=0,
        fetching=0,
    )


async def test_an_hour_is_kept_in_steps_of_seconds_and_a_day_in_steps_of_minutes(autojump_clock: MockClock) -> None:
    history = History(sample)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(history.run)
        await trio.sleep(30 * 3600 + 3)  # between two samples
        now = trio.current_time()
        times = [each.time for each in history.samples()]
        nursery.cancel_scope.cancel()
    fine = [time for time in times if time >= now - 3600]
    assert 350 <= len(fine) <= 362
    assert times == sorted(set(times))
    assert 22 * 3600 < now - times[0] <= 25 * 3600
    steps = {round(later - former) for former, later in pairwise(times) if later < now - 3700}
    assert all(240 <= step <= 360 for step in steps)
    assert [each.time for each in history.samples(now - 60)] == [time for time in times if time > now - 60]
