"""One user's files and requests must not make the others wait: for each attack, the longest wait of a bystander."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.users.attackers import attacking
from tests.support.users.privileges import MALLORY
from tests.support.users.stalls import bystander

_LIBC = ctypes.CDLL(None, use_errno=True)
_GETDENTS64 = 217
_MOST_NAMES = 1000
_WORKING_DIRECTORIES = 2500


def test_a_bystander_feels_a_daemon_that_hangs_until_the_next_one_answers(make_node: NodeFactory) -> None:
    """What the other tests here measure with would notice."""
    node = make_node()
    node.supervised, node.watchdog_seconds, node.faults = True, 2.0, ["hang_on_signal"]
    node.start()
    node.expected_faults += ["Fatal Python error: Aborted", "most recent call first", "  File "]
    with bystander(node) as waits:
        hung = node.pid
        os.kill(hung, signal.SIGUSR1)
        wait_until(lambda: node.pid_now() not in (0, hung))
    assert waits.longest_ms > 1000
    with pytest.raises(AssertionError, match="calls, at most"):
        waits.check()


def test_a_bystander_of_nobody_waits_for_nothing(node: Node) -> None:
    with bystander(node) as waits:
        pass
    assert min(longest.calls for longest in waits.by_call.values()) >= 1
    waits.check()


def test_many_open_files_do_not_grow_the_table_of_descriptors(node: Node) -> None:
    """Gain: each time it grows, whoever opens a file waits for all processors, and everybody with it."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert descriptor_places(node.pid) >= min(limit, 131_072)


def descriptor_places(pid: int) -> int:
    """Return for how many descriptors a process has room in its table."""
    _, _, behind = Path(f"/proc/{pid}/status").read_text().partition("\nFDSize:")
    return int(behind.split()[0])


def test_thousands_of_working_directories_cost_others_nothing(node: Node) -> None:
    """Gain: each end of a process, each look at metrics or status, and each second the quotas, go through all of them."""

    def make(number: int) -> None:
        for each in range(_WORKING_DIRECTORIES):
            (node.work / f"driver_{number}x{each}").mkdir()

    for number in range(2):
        MALLORY.do(partial(make, number))  # and its process ends, which held them
    with bystander(node) as waits, node.client() as client:
        assert f'holdfast_workdirs{{state="released"}} {2 * _WORKING_DIRECTORIES}' in client.metrics()
        MALLORY.do((node.work / "driver_of_one_more").mkdir)
        assert len(client.workdirs()) == 2 * _WORKING_DIRECTORIES + 2
    waits.check()


@pytest.fixture
def home(node: Node) -> Path:
    """MALLORY's working directory."""
    directory = node.work / "mallory_1"
    MALLORY.do(directory.mkdir)
    return directory


def dug(top: Path, name: str, levels: int) -> int:
    """Dig as deep as that, or as the mount lets one; return a descriptor of the deepest directory."""
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        try:
            child = dig_one(fd, name)
        except OSError as problem:
            if problem.errno != errno.ENAMETOOLONG:
                raise
            return fd
        os.close(fd)
        fd = child
    return fd


def dig_one(fd: int, name: str) -> int:
    """Make a directory in the one that is open at ``fd``; return its descriptor."""
    os.mkdir(name, dir_fd=fd)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)


@pytest.mark.promise("deep-trees")
@pytest.mark.parametrize(("name", "levels"), [("n" * 250, 3900), ("d", 3900)], ids=["long names", "short names"])
def test_a_file_with_many_names_deep_in_a_tree_costs_its_owner_alone(name: str, levels: int, node: Node, home: Path) -> None:
    """Gain: one open is a check of rights for each name, each of them for each level, each for all levels above it."""

    def attack() -> None:
        (home / "tmp/top").mkdir()
        fd = dug(home / "tmp/top", name, levels)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        for number in range(40):
            os.link("f", f"l{number}", src_dir_fd=fd, dst_dir_fd=fd)
        os.rename(home / "tmp/top", home / "localState/top")
        for number in range(20):
            with suppress(OSError):
                os.close(os.open("f", os.O_RDONLY, dir_fd=fd))
            with suppress(OSError):
                os.close(os.open("f", os.O_WRONLY, dir_fd=fd))
            with suppress(OSError):
                os.stat(f"absent{number}", dir_fd=fd)
            with suppress(OSError):
                os.setxattr(f"/proc/self/fd/{fd}/f", "user.a", b"%d" % number)
            with suppress(OSError):
                os.chmod("f", 0o600 + number % 2, dir_fd=fd)
            with suppress(OSError):
                os.rename(f"l{number}", f"m{number}", src_dir_fd=fd, dst_dir_fd=fd)

    first = node.pid
    with bystander(node) as waits:
        MALLORY.do(attack)
    waits.check()
    assert node.pid == first


@pytest.mark.promise("local-links")
@pytest.mark.parametrize("zone", ["localState", "tmp"])
def test_a_file_has_a_thousand_names_at_most_and_none_of_them_costs_others_anything(
    zone: str, node: Node, home: Path
) -> None:
    """Gain: each open, close, link and rename goes through all names of the file."""
    path = home / zone / "f"

    def link() -> None:
        path.touch()
        for number in range(_MOST_NAMES - 1):
            os.link(path, home / zone / f"l{number}")
        with pytest.raises(OSError, match=os.strerror(errno.EMLINK)):
            os.link(path, home / zone / "one more")
        assert path.stat().st_nlink == _MOST_NAMES

    MALLORY.do(link)

    def use(number: int) -> None:
        os.close(os.open(path, os.O_RDWR))
        os.chmod(path, 0o600 + number % 2)
        old, new = home / zone / f"l{number % 10}", home / zone / "moved"
        os.rename(old, new)
        os.rename(new, old)

    with attacking(MALLORY, use), bystander(node) as waits:
        waits.wait_rounds(20)
    waits.check()


def test_names_in_many_directories_cost_others_nothing(node: Node, home: Path) -> None:
    """Gain: a check of rights for each directory, however few names are in each."""
    path = home / "localState/f"

    def link() -> None:
        path.touch()
        for number in range(_MOST_NAMES - 1):
            directory = home / f"localState/{number}/d/d/d"
            directory.mkdir(parents=True)
            os.link(path, directory / "l")

    MALLORY.do(link)
    with attacking(MALLORY, lambda _: os.close(os.open(path, os.O_RDWR))), bystander(node) as waits:
        waits.wait_rounds(20)
    waits.check()


def test_names_on_many_levels_of_deep_trees_cost_others_nothing(node: Node, home: Path) -> None:
    """Gain: the way to each of the directories is long, and there are more of them than are kept open."""
    path = home / "localState/f"

    def link() -> None:
        path.touch()
        for chain in "abc":
            (home / "localState" / chain).mkdir()
            fd = os.open(home / "localState" / chain, os.O_RDONLY | os.O_DIRECTORY)
            for level in range(3000):
                child = dig_one(fd, "d")
                os.close(fd)
                fd = child
                if level % 20 == 0:
                    os.link(path, "l", dst_dir_fd=fd)
            os.close(fd)

    MALLORY.do(link)
    with attacking(MALLORY, lambda _: os.close(os.open(path, os.O_RDWR))), bystander(node) as waits:
        waits.wait_rounds(20)
    waits.check()


def test_a_reader_with_room_for_a_whole_directory_lets_others_in_between(node: Node, home: Path) -> None:
    """Gain: one request for thousands of entries with their attributes."""

    def fill() -> None:
        for number in range(5000):
            (home / f"tmp/{number}").touch()

    MALLORY.do(fill)
    room = ctypes.create_string_buffer(1 << 22)

    def listed(_: int) -> None:
        fd = os.open(home / "tmp", os.O_RDONLY | os.O_DIRECTORY)
        try:
            while _LIBC.syscall(_GETDENTS64, fd, room, len(room)) > 0:
                with suppress(OSError):
                    os.stat("0", dir_fd=fd)  # then the next part comes with attributes
        finally:
            os.close(fd)

    with attacking(MALLORY, listed), bystander(node) as waits:
        waits.wait_rounds(20)
    waits.check()


def test_a_directory_that_was_large_is_listed_and_removed_without_others_waiting(node: Node, home: Path) -> None:
    """Gain: each listing goes through all blocks that the directory ever had, and so does its removal, which frees them."""

    def fill(directory: Path) -> None:
        directory.mkdir()
        names = [f"{number:05}".ljust(255, "x") for number in range(4500)]
        for name in names:
            os.close(os.open(directory / name, os.O_CREAT | os.O_WRONLY))
        assert sorted(os.listdir(directory)) == names
        for name in names:
            os.unlink(directory / name)
        assert os.listdir(directory) == []

    def remove() -> None:
        (home / "tmp/other").mkdir()
        (home / "tmp/other").rename(home / "tmp/large")
        (home / "tmp/large").rmdir()
        (home / "tmp/second").rmdir()
        assert os.listdir(home / "tmp") == []

    for name in ("large", "second"):
        MALLORY.do(partial(fill, home / "tmp" / name))
        assert (node.store / "tree/work/mallory_1/tmp" / name).stat().st_size > 2**20
    with attacking(MALLORY, lambda _: os.listdir(home / "tmp/large")), bystander(node) as waits:
        waits.wait_rounds(20)
    waits.check()
    with bystander(node) as waits:
        MALLORY.do(remove)
    waits.check()
