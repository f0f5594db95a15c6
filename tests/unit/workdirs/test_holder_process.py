"""Waiting for the end of processes, also where no descriptor is free to wait with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from holdfast.workdirs import Process
from tests.support.processes.descriptors import no_free_descriptors, pidfds
from tests.support.processes.programs import copied_program, running


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process
        process.kill()


def test_a_program_whose_name_is_cut_within_a_character_is_a_process_too(tmp_path: Path) -> None:
    program = tmp_path / ("ä" * 8)
    copied_program(program)
    with running(program) as process:
        found = Process.find(process.pid)
        assert found.command.startswith("ä" * 7)
        assert found.is_alive()
    assert not found.is_alive()


async def note_end(process: Process, ended: trio.Event) -> None:
    await process.wait_end()
    ended.set()


@pytest.mark.promise("workdir-holders")
async def test_a_process_lives_on_where_no_descriptor_is_free(
    nursery: trio.Nursery, autojump_clock: MockClock, child: subprocess.Popen[bytes]
) -> None:
    ended = trio.Event()
    process = Process.find(child.pid)
    with no_free_descriptors(os.getpid()):
        nursery.start_soon(note_end, process, ended)
        await trio.sleep(60)
        assert not ended.is_set()
    await trio.sleep(60)
    assert not ended.is_set()
    assert pidfds(os.getpid()) == 1
    child.kill()
    child.wait()
    with trio.fail_after(60):
        await ended.wait()
    assert pidfds(os.getpid()) == 0


async def test_an_end_without_a_free_descriptor_is_found_later(
    nursery: trio.Nursery, autojump_clock: MockClock, child: subprocess.Popen[bytes]
) -> None:
    ended = trio.Event()
    process = Process.find(child.pid)
    with no_free_descriptors(os.getpid()):
        nursery.start_soon(note_end, process, ended)
        await trio.sleep(60)
        child.kill()
        child.wait()
        await trio.sleep(60)
    with trio.fail_after(60):
        await ended.wait()


async def test_who_has_ended_is_not_waited_for(autojump_clock: MockClock, child: subprocess.Popen[bytes]) -> None:
    process = Process.find(child.pid)
    later = Process(process.pid, process.started_ticks - 1, process.command)
    child.kill()
    child.wait()
    for ended in (process, later, Process(0, 0, "")):
        with trio.fail_after(60):
            await ended.wait_end()


def test_a_process_is_the_same_under_another_name() -> None:
    process = Process.find(os.getpid())
    assert process == Process(process.pid, process.started_ticks, "another")
    assert process != Process(process.pid, process.started_ticks + 1, process.command)
