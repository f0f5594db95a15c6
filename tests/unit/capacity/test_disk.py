"""The disk as it is seen: how fast it is taken by others, when to look again, and when nobody should pass the daemon by."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from holdfast.capacity import Disk
from holdfast.store import DiskSpace, Space

GIB = 1 << 30


class FakeDisk:
    """100 GiB, of which ``free_bytes`` are free; ``now`` is the time."""

    def __init__(self, free_bytes: int = 10 * GIB) -> None:
        self.free_bytes = free_bytes
        self.deleted_bytes = 0
        self.now = 0.0
        self.looks = 0

    def measure(self) -> DiskSpace:
        self.looks += 1
        return DiskSpace(100 * GIB, self.free_bytes, 1000, 500)

    def seen(self) -> Disk:
        return Disk(self.measure, lambda: Space(self.deleted_bytes > 0, self.deleted_bytes), lambda: self.now)

    def take(self, disk: Disk, size_bytes: int, seconds: float) -> None:
        self.free_bytes -= size_bytes
        self.now += seconds
        disk.look()


def test_the_rate_is_that_of_the_last_second() -> None:
    fake = FakeDisk()
    disk = fake.seen()
    for _ in range(10):
        fake.take(disk, GIB // 10, 0.1)
    assert disk.bytes_per_second == pytest.approx(GIB, rel=0.01)
    for _ in range(3):
        fake.take(disk, 0, 1.0)
    assert disk.bytes_per_second == 0


def test_what_is_taken_between_rare_looks_is_spread_over_the_time() -> None:
    fake = FakeDisk()
    disk = fake.seen()
    fake.take(disk, 5 * GIB, 5.0)
    assert disk.bytes_per_second == pytest.approx(GIB)


def test_evictions_do_not_hide_what_others_take_and_copies_are_not_others() -> None:
    fake = FakeDisk()
    disk = fake.seen()
    disk.evicted(GIB)
    fake.take(disk, 0, 1.0)
    assert disk.bytes_per_second == pytest.approx(GIB)
    fake = FakeDisk()
    disk = fake.seen()
    disk.admitted(2 * GIB)
    fake.take(disk, GIB, 0.2)
    fake.take(disk, GIB, 0.2)
    assert disk.bytes_per_second == 0
    fake.take(disk, GIB, 0.6)
    assert disk.bytes_per_second == pytest.approx(GIB)


def test_what_is_deleted_and_not_free_yet_counts_as_free_but_not_for_a_writer_who_needs_it_now() -> None:
    fake = FakeDisk(free_bytes=0)
    fake.deleted_bytes = GIB
    disk = fake.seen()
    assert not disk.is_freeing
    assert disk.look() == DiskSpace(100 * GIB, GIB, 1000, 501)
    assert disk.is_freeing
    assert not disk.has_room(Space(1, 1))
    assert disk.is_scarce()


def test_as_much_as_was_taken_is_kept_ahead_while_somebody_passes_the_daemon_by() -> None:
    fake = FakeDisk(50 * GIB)
    disk = fake.seen()
    fake.take(disk, 2 * GIB, 1.0)
    assert disk.ahead_bytes == 0
    disk.writer_begins()
    assert disk.ahead_bytes == 2.5 * GIB
    fake.take(disk, 47 * GIB, 0.5)
    assert disk.ahead_bytes == 25.5 * GIB  # a quarter of the disk, and what makes it scarce
    disk.writer_ends()
    assert disk.ahead_bytes == 0


def test_scarcity_is_seen_when_it_matters() -> None:
    fake = FakeDisk()
    disk = fake.seen()
    assert not disk.is_scarce()
    fake.free_bytes = 200 * 2**20
    looks = fake.looks
    assert not disk.is_scarce()
    assert fake.looks == looks
    fake.now += 1
    assert disk.is_scarce()


def test_what_becomes_free_during_a_look_counts_once() -> None:
    fake = FakeDisk(free_bytes=0)
    fake.deleted_bytes = GIB

    def measure() -> DiskSpace:
        space = fake.measure()
        fake.free_bytes, fake.deleted_bytes = GIB, 0  # by another thread
        return space

    disk = Disk(fake.measure, lambda: Space(fake.deleted_bytes > 0, fake.deleted_bytes), lambda: 0.0)
    disk._measure = measure
    assert disk.look().free_bytes == GIB
    assert not disk.is_freeing
    assert disk.has_room(Space(1, GIB - 1))


async def test_a_disk_is_scarce_until_what_a_writer_could_fill_in_an_instant_is_free_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever was refused makes the daemon evict, so that the next one is not."""
    fake = FakeDisk(free_bytes=400 * 2**20)
    disk = Disk(fake.measure, lambda: Space(0, 0), trio.current_time)
    assert disk.ahead_bytes == 0
    with trio.move_on_after(1000) as limit:
        await disk.wait_to_look()
    assert limit.cancelled_caught
    assert disk.is_scarce()
    with trio.fail_after(0.2):
        await disk.wait_to_look()
    assert disk.ahead_bytes == 512 * 2**20
    fake.free_bytes = disk.ahead_bytes
    await trio.sleep(0.1)
    assert not disk.is_scarce()
    await trio.sleep(2)
    assert disk.ahead_bytes == 0


async def test_the_less_is_free_the_sooner_it_looks_again_but_only_for_writers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fake = FakeDisk()
    disk = Disk(fake.measure, lambda: Space(0, 0), trio.current_time)
    times = []

    async def watch() -> None:
        while True:
            await disk.wait_to_look()
            disk.look()
            times.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        began = trio.current_time()
        await trio.sleep(60)
        assert times == []
        disk.writer_begins()
        await trio.sleep(9)
        assert [round(at - began, 3) for at in times] == [60, 62.5, 65, 67.5]
        fake.free_bytes = GIB // 4
        await trio.sleep(10)  # what this took is not the rate any more
        times.clear()
        await trio.sleep(1)
        assert len(times) == pytest.approx(1 / 0.0625, abs=1)
        fake.free_bytes = 0
        times.clear()
        await trio.sleep(1)
        assert len(times) == pytest.approx(200, rel=0.1)
        disk.writer_ends()
        await trio.sleep(1)
        times.clear()
        await trio.sleep(60)
        assert times == []
        nursery.cancel_scope.cancel()
