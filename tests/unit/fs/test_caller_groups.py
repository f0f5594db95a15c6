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
from pathlib import Path

import pytest

from holdfast.fs.inodes.caller import Caller, CallerGroups
from holdfast.system.processes import answerable, leader_of, supplementary_groups
from tests.support.users.privileges import MALLORY

pytestmark = pytest.mark.slow


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
    owner: tuple[int, int] = (7, 0)
    reads: int = field(default=0, compare=False)

    def supplementary_groups(self) -> frozenset[int]:
        self.machine.processor_seconds += self.takes_seconds
        self.reads += 1
        return frozenset(self.groups)

    def answerable(self) -> tuple[int, int]:
        return self.owner


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


@pytest.mark.promise("caller-rights")
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
    assert groups.of(Process(machine, 8, 0.0001, {5}, owner=(8, 0))) == {5}
    assert groups.of(Process(machine, 7, 0.0001, {5}, owner=(0, 99))) == {5}, "in a container of root's"


def test_many_uids_of_one_owner_have_one_rest_together(machine: Machine, groups: CallerGroups) -> None:
    """Gain: a user with a range of subordinate ids has 65,536 times what one user may take of the event loop."""
    many = [Process(machine, uid, 0.05) for uid in range(100_000, 100_050)]
    for process in many:
        groups.of(process)
    assert sum(process.reads for process in many) == 1


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


_SUBORDINATE = """
import ctypes, os, sys
first, mallory = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([])
os.setresgid(mallory, mallory, mallory)
os.setresuid(mallory, mallory, mallory)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x10000000) == 0  # CLONE_NEWUSER
print("unshared", flush=True)
input()
for number in range(1, 21):
    if os.fork() == 0:
        os.setgroups(range(1, 65_536))
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
        if number % 2:  # in a namespace of its own below
            assert libc.unshare(0x10000000) == 0
        os.write(1, b"%d %d\\n" % (os.getpid(), first + number - 1))  # in one piece, or the lines get mixed
        input()
        os._exit(0)
print("all", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
"""Becomes a user with a range of subordinate ids, and twenty processes of as many uids, each with as many groups."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a user a range of subordinate ids")
def test_a_user_with_subordinate_ids_holds_up_the_loop_no_longer_than_another() -> None:
    first = 200_000
    command = [sys.executable, "-c", _SUBORDINATE, str(first), str(MALLORY.uid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "unshared\n"
        for name, own in (("uid_map", MALLORY.uid), ("gid_map", MALLORY.gid)):
            Path(f"/proc/{process.pid}/{name}").write_text(f"0 {own} 1\n1 {first} 65535\n")
        process.stdin.write("go\n")
        process.stdin.flush()
        said = sorted(process.stdout.readline() for _ in range(21))
        callers = [Caller(int(uid), int(uid), int(pid)) for pid, uid in (line.split() for line in said[:20])]
        groups = CallerGroups()
        held = groups.of(callers[0])
        assert (first in held, first + 65_534 in held, first + 65_535 in held) == (True, True, False)
        assert {caller.answerable() for caller in callers} == {(MALLORY.uid, 0)}
        began = time.thread_time()
        for _ in range(3):
            for caller in callers:
                groups.of(caller)
        assert time.thread_time() - began < 0.1, "a read of each takes 400 ms"
        process.communicate("end\n" * 40)


def test_who_is_in_no_user_namespace_of_its_own_answers_for_itself() -> None:
    assert answerable(os.getpid(), 7) == (7, 0)
    assert answerable(2**22 + 1, 7) == (7, 0)


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
