"""The times of a store's directory: those of the names in it, whatever the cache does behind them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until

ALWAYS = {"remote__metadata_ttl_seconds": 0}
_CLOCK_REALTIME_COARSE = 5  # linux/time.h: the clock from which file systems take their times


def times(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_ctime_ns


def await_tick(since_ns: int) -> None:
    """Wait until a change gets a later time: before Linux 6.13, changes in one tick of the clock have the same."""
    wait_until(lambda: time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) > since_ns)


def shown(path: Path) -> tuple[int, ...]:
    """Return what programs compare before and after they have read something."""
    stat = path.stat()
    return stat.st_ino, stat.st_mode, stat.st_size, stat.st_blocks, stat.st_mtime_ns, stat.st_ctime_ns


def put(directory: Path, *names: str) -> None:
    """Store objects as another node does."""
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(name.encode() * 100)


def evict(node: Node, path: Path) -> int:
    with node.client() as client:
        return [step.done for step in client.evict(str(path))][-1]


@pytest.fixture(params=[True, False], ids=["passthrough", "through the daemon"])
def node(request: pytest.FixtureRequest, make_node: NodeFactory) -> Node:
    return make_node(mount__passthrough=request.param, **ALWAYS).start()


@pytest.mark.promise("directory-times")
def test_tar_reads_what_is_not_cached_without_a_complaint(node: Node, remote_files: Path) -> None:
    put(remote_files, "job/a", "job/b", "job/state/0/1.delta", "job/state/1/1.delta")
    for _ in range(2):
        packed = subprocess.run(
            ["tar", "-cf", "/dev/stdout", "-C", node.checkpoints, "job"], capture_output=True, check=False
        )
        assert (packed.returncode, packed.stderr) == (0, b"")


@pytest.mark.promise("directory-times")
def test_fetching_and_evicting_changes_no_attribute_of_a_directory(node: Node, remote_files: Path) -> None:
    put(remote_files, "job/state/0/1.delta", "job/metadata")
    watched = [node.checkpoints, *(node.checkpoints / path for path in ("job", "job/state", "job/state/0"))]
    before = [shown(path) for path in watched]
    for name in ("job/state/0/1.delta", "job/metadata"):
        assert (node.checkpoints / name).read_bytes()
    assert node.backing(node.checkpoints / "job/state/0/1.delta").exists()
    assert [shown(path) for path in watched] == before
    assert evict(node, node.checkpoints / "job") == 2
    assert [shown(path) for path in watched] == before
    node.kill()
    node.start()
    assert [shown(path)[1:] for path in watched] == [attributes[1:] for attributes in before]


@pytest.mark.promise("ctime")
def test_fetching_and_evicting_changes_only_the_ctime_of_a_file(node: Node, remote_files: Path) -> None:
    put(remote_files, "job/a")
    file = node.checkpoints / "job/a"
    before, began = shown(file), time.time_ns()
    assert before[-1] == before[-2] == (remote_files / "job/a").stat().st_mtime_ns
    assert file.read_bytes() == b"job/a" * 100
    here = shown(file)
    assert here[:-1] == before[:-1]
    assert here[-1] > began - 10**9
    assert evict(node, file) == 1
    wait_until(lambda: shown(file) == before)


@pytest.mark.promise("directory-times")
def test_a_name_that_another_node_adds_or_removes_gives_its_directory_a_later_time(node: Node, remote_files: Path) -> None:
    put(remote_files, "job/a", "job/b")
    directory = node.checkpoints / "job"
    seen = [times(directory)]
    assert sorted(os.listdir(directory)) == ["a", "b"]
    assert times(directory) == seen[0]
    changes: tuple[Callable[[], None], ...] = (
        lambda: put(remote_files, "job/c"),
        (remote_files / "job/a").unlink,
        lambda: put(remote_files, "job/below/d"),
    )
    for change in changes:
        change()
        os.listdir(directory)
        seen.append(times(directory))
    assert seen == sorted(set(seen)), "later with each change"
    assert sorted(os.listdir(directory)) == ["b", "below", "c"]
    assert times(directory) == seen[-1]
    node.kill()
    node.start()
    assert times(directory) == seen[-1]


@pytest.mark.promise("directory-times")
def test_another_version_of_an_object_is_no_change_of_its_directory(node: Node, remote_files: Path) -> None:
    put(remote_files, "job/a")
    (node.checkpoints / "job/a").read_bytes()
    before = times(node.checkpoints / "job")
    (remote_files / "job/a").write_bytes(b"another version")
    assert (node.checkpoints / "job/a").read_bytes() == b"another version"
    assert times(node.checkpoints / "job") == before


@pytest.mark.promise("directory-times")
def test_what_users_do_here_gives_the_directory_a_later_time(node: Node, remote_files: Path) -> None:
    put(remote_files, "job/a", "job/b", "job/c")
    directory = node.checkpoints / "job"
    os.listdir(directory)
    for change in (
        (directory / "new").touch,
        (directory / "a").unlink,  # of which there is no copy here
        lambda: (directory / "b").rename(directory / "d"),
        (directory / "below").mkdir,
        (directory / "below").rmdir,
        (directory / "new").unlink,
    ):
        before = times(directory)
        await_tick(max(before))
        change()
        assert times(directory) > before
    last = times(directory)
    wait_until(lambda: not (remote_files / "job/a").exists() and not (remote_files / "job/new").exists())
    assert sorted(os.listdir(directory)) == ["c", "d"]
    assert times(directory) == last, "that the store has heard of it changes nothing"


@pytest.mark.promise("directory-times")
def test_a_time_that_a_user_sets_stays_until_the_names_change(node: Node, remote_files: Path) -> None:
    put(remote_files, "job/a")
    directory = node.checkpoints / "job"
    os.utime(directory, ns=(1, 2_000_000_000))
    (directory / "a").read_bytes()
    assert evict(node, directory) == 1
    assert directory.stat().st_mtime_ns == 2_000_000_000
    put(remote_files, "job/b")
    os.listdir(directory)
    assert directory.stat().st_mtime_ns > 10**18


@pytest.mark.promise("directory-times")
def test_a_running_program_imports_a_module_that_another_node_has_added(node: Node, remote_files: Path) -> None:
    put(remote_files, "lib/__none__")
    (remote_files / "lib/first.py").write_text("WORD = 'first'\n")
    program = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(node.checkpoints / 'lib')!r})\n"
        "for name in sys.stdin:\n"
        "    print(importlib.import_module(name.strip()).WORD, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("first\n")
        assert running.stdout.readline() == "first\n"
        (remote_files / "lib/second.py").write_text("WORD = 'second'\n")
        running.stdin.write("second\n")
        assert running.stdout.readline() == "second\n"
        running.stdin.close()
