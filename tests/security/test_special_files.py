"""Links and special files do not get into a store's zone, where the daemon would be led astray or wait, by any name."""

from __future__ import annotations

import errno
import os
import shutil
import stat as stat_module
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.security.stores import exchange, refused, workdir_of
from tests.support.daemons.faults.switches import SWITCHES
from tests.support.daemons.node import Node, wait_until
from tests.support.users.privileges import MALLORY

KINDS: dict[str, Callable[[Path], object]] = {
    "link": lambda path: path.symlink_to("/etc/shadow"),
    "fifo": os.mkfifo,
    "socket": lambda path: os.mknod(path, stat_module.S_IFSOCK | 0o600),
}


def make_open(directory: Path, names: str) -> Path:
    """Make directories, each in the one before, in which everybody may do anything; return the last one."""
    for name in names.split("/"):
        directory /= name
        directory.mkdir()
        directory.chmod(0o777)
    return directory


@pytest.mark.promise("refused-kinds")
@pytest.mark.parametrize("target", ["checkpoints/open/new.tmp", "checkpoints/open/_temporary/new", "blobStorage/new.tmp"])
@pytest.mark.parametrize("kind", KINDS)
def test_none_gets_into_a_zone_that_is_sent_by_a_temporary_name(node: Node, kind: str, target: str) -> None:
    """Gain: the directory gets a final name later, and with it what is in it."""
    make_open(node.checkpoints, "open/_temporary")
    home = workdir_of(node, MALLORY, "driver_m")
    special, plain = home / "tmp/special", home / "tmp/plain"
    new = (home if target.startswith("blobStorage") else node.mountpoint) / target

    def attack() -> None:
        KINDS[kind](special)
        plain.touch()
        assert refused(lambda: KINDS[kind](new)) == errno.EPERM
        assert refused(lambda: os.link(special, new, follow_symlinks=False)) == errno.EPERM
        assert refused(lambda: special.rename(new)) == errno.EPERM
        plain.rename(new)
        assert refused(lambda: exchange(special, new)) == errno.EPERM
        assert refused(lambda: exchange(new, special)) == errno.EPERM

    MALLORY.do(attack)
    assert stat_module.S_ISREG(new.lstat().st_mode)
    assert not stat_module.S_ISREG(special.lstat().st_mode)


@pytest.mark.promise("refused-kinds")
def test_what_is_left_of_a_time_when_nothing_was_sent_gets_no_final_name(make_node: NodeFactory, remote_files: Path) -> None:
    """A store of level ``local`` takes links and special files; later it is configured to be sent."""
    node = make_node(checkpoints__durability="local").start()
    task = make_open(node.checkpoints, "open/_temporary/task")
    for kind, make in KINDS.items():
        MALLORY.do(partial(make, task / kind))
    node.stop()
    node.start(checkpoints__durability="commit")

    def attack() -> None:
        assert refused(lambda: task.rename(node.checkpoints / "open/task")) == errno.EXDEV
        assert refused(lambda: task.rename(task.with_name("other"))) == errno.EXDEV
        for kind in KINDS:
            assert refused(partial((task / kind).rename, node.checkpoints / "open" / kind)) == errno.EPERM
            assert refused(partial((task / kind).rename, task / "other.tmp")) == errno.EPERM

    MALLORY.do(attack)
    assert sorted(os.listdir(task)) == sorted(KINDS)
    assert not [path for path in remote_files.rglob("*") if not path.is_dir()]
    for kind in KINDS:
        MALLORY.do((task / kind).unlink)
    task.rename(node.checkpoints / "open/task")


@pytest.mark.promise("rename-directory")
def test_a_file_that_is_made_while_its_directory_is_examined_is_not_left_unsent(
    make_node: NodeFactory, workspace: Path, remote_files: Path
) -> None:
    """It would have a final name that only this node knows."""
    node = make_node()
    node.faults = ["pausing_walk"]
    node.environment = {SWITCHES: str(workspace)}
    node.start()
    task = node.checkpoints / "out/_temporary/task"
    (task / "deep").mkdir(parents=True)
    (workspace / "pause").touch()
    with ThreadPoolExecutor() as thread:
        renaming = thread.submit(refused, lambda: task.rename(node.checkpoints / "out/task"))
        wait_until((workspace / "paused").exists)
        (task / "deep/part-0").write_bytes(b"rows")
        (workspace / "pause").unlink()
        assert renaming.result() == errno.EXDEV
    shutil.move(task, node.checkpoints / "out/task")
    assert (remote_files / "out/task/deep/part-0").read_bytes() == b"rows"
