"""Groups of callers: a process with very many of them takes little of the event loop."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.caller_groups import CallerGroups
from holdfast.processes import leader_of, supplementary_groups


@dataclass
class Machine:
    """A clock, and the processor's."""

    seconds: float = 0.0
    processor_seconds: float = 0.0


@dataclass
class Process:
    """A caller whose groups take so long to be read."""

    machine: Machine = field(compare=False)
    uid: int
    takes_seconds: float
    groups: Iterable[int] = ()
    gid: int = 1
    reads: int = field(default=0, compare=False)

    def supplementary_groups(self) -> frozenset[int]:
        self.machine.processor_seconds += self.takes_seconds
        self.reads += 1
        return frozenset(self.groups)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def groups(machine: Machine) -> CallerGroups:
    return CallerGroups(lambda: machine.seconds, lambda: machine.processor_seconds)


def test_groups_are_read_anew_each_time(machine: Machine, groups: CallerGroups) -> None:
    process = Process(machine, 7, 0.0001, {5})
    assert groups.of(process) == {5}
    process.groups = {6}
    assert groups.of(process) == {6}


def test_a_process_with_too_many_groups_is_asked_seldom(machine: Machine, groups: CallerGroups) -> None:
    many = Process(machine, 7, 0.05, range(65_536))
    another = Process(machine, 7, 0.04, {9})
    for _ in range(1000):
        assert groups.of(many) == frozenset(range(65_536))
        assert groups.of(another) == frozenset()
    assert (many.reads, another.reads) == (1, 0)
    machine.seconds = 2.6
    assert groups.of(another) == {9}


def test_another_user_is_not_concerned(machine: Machine, groups: CallerGroups) -> None:
    groups.of(Process(machine, 7, 0.05))
    assert groups.of(Process(machine, 8, 0.0001, {5})) == {5}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root, or a user namespace, gives a process so many groups")
def test_a_process_with_as_many_groups_as_there_can_be_holds_up_the_loop_for_an_instant() -> None:
    program = "import os; os.setgroups(range(100_000, 165_536)); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        groups, began = CallerGroups(), time.thread_time()
        held = groups.of(Caller(0, 0, process.pid))
        assert [gid in held for gid in (0, 10_000, 99_999, 100_000, 130_000, 165_535, 165_536)] == [
            False, False, False, True, True, True, False
        ]  # fmt: skip
        assert time.thread_time() - began < 0.1
        process.communicate(b"\n")


def test_groups_that_are_read_are_those_of_the_thread() -> None:
    own = supplementary_groups(os.getpid(), os.geteuid(), os.getegid())
    assert all(gid in own for gid in os.getgroups())
    assert 2**32 - 2 not in own
    assert os.getgid() not in supplementary_groups(os.getpid(), os.geteuid() + 1, os.getegid())


def test_the_process_of_a_thread_is_found() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(lambda: leader_of(threading.get_native_id())).result() == os.getpid()
    assert leader_of(os.getpid()) == os.getpid()


def test_the_leader_of_a_thread_that_is_none_is_not_found() -> None:
    with pytest.raises(OSError, match="No such file"):
        leader_of(2**22 + 1)
