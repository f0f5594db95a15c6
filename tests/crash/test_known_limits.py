"""What a takeover can't hide from those who work in the mount: it costs them a wait or a clear error, and nothing else."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from tests.conftest import NodeFactory
from tests.crash.test_takeover import no_daemon, supervised
from tests.support.daemons.node import wait_until

GONE = {errno.ENOENT, errno.ESTALE}

IN_REMOVED_DIRECTORY = """
import errno, os, sys
LOOKS = [
    os.getcwd,
    lambda: os.listdir("."),
    lambda: os.stat("."),
    lambda: os.stat("0"),
    lambda: os.chmod(".", 0o777),
    lambda: open("0").read(),
    lambda: open("made", "w"),
    lambda: os.mkdir("made"),
]
input()
for look in LOOKS:
    try:
        print(look())
    except OSError as problem:
        print(errno.errorcode[problem.errno])
"""


def waits_for_daemon(thread: Thread) -> bool:
    return b"request_wait_answer" in Path(f"/proc/self/task/{thread.native_id}/stack").read_bytes()


@pytest.mark.promise("takeover")
def test_a_write_after_a_look_at_the_attributes_waits_for_a_daemon_once_and_is_not_lost(
    make_node: NodeFactory, remote_files: Path
) -> None:
    """The kernel asks for ``security.capability`` before such a write."""
    node = supervised(make_node)
    if node.status().data_mode != "passthrough":
        pytest.skip("the daemon serves the data")
    path = node.checkpoints / "file"
    with path.open("w+b", buffering=0) as file:
        file.write(b"before, ")
        assert os.fstat(file.fileno()).st_size == 8
        first, second = Thread(target=file.write, args=(b"after, ",)), Thread(target=file.write, args=(b"and again",))
        with no_daemon(node):
            first.start()
            wait_until(lambda: waits_for_daemon(first))
            assert os.pread(file.fileno(), 100, 0) == b"before, "
        first.join()
        wait_until(node.answers)
        with no_daemon(node):
            second.start()
            second.join()
            assert os.pread(file.fileno(), 100, 0) == b"before, after, and again"
    assert path.read_bytes() == (remote_files / "file").read_bytes() == b"before, after, and again"


@pytest.mark.promise("takeover")
def test_a_child_that_closes_what_it_has_inherited_waits_for_the_next_daemon(make_node: NodeFactory) -> None:
    """The kernel waits in each close(2) of a file that its close may send, because it can't know which is the writer's."""
    node = supervised(make_node)
    is_read_without_daemon = node.status().data_mode == "passthrough"
    path = node.checkpoints / "file"
    path.write_bytes(b"content")
    with path.open("r+b", buffering=0) as file:
        command = [sys.executable, "-c", f"import os; input(); os.close({file.fileno()}); print('closed')"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, pass_fds=[file.fileno()], stdin=pipe, stdout=pipe) as child:
            assert child.stdin is not None
            with no_daemon(node):
                child.stdin.write(b"now\n")
                child.stdin.close()
                wait_until(lambda: b"request_wait_answer" in Path(f"/proc/{child.pid}/stack").read_bytes())
                if is_read_without_daemon:
                    assert file.read() == b"content"
            assert child.stdout is not None
            assert child.stdout.read() == b"closed\n"
        assert os.pread(file.fileno(), 100, 0) == b"content"
        assert child.returncode == 0


@pytest.mark.promise("takeover-losses")
def test_what_was_removed_is_gone_after_a_takeover_and_never_something_new(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    at = node.work / "here"
    (at / "removed").mkdir(parents=True)
    (at / "held").write_bytes(b"held")
    (at / "open").write_bytes(b"open")
    directory, held = os.open(at / "removed", os.O_RDONLY), os.open(at / "held", os.O_PATH)
    command = [sys.executable, "-c", IN_REMOVED_DIRECTORY]
    process = subprocess.Popen(command, cwd=at / "removed", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process, (at / "open").open("r+b", buffering=0) as opened:
        (at / "removed").rmdir()
        (at / "held").unlink()
        (at / "open").unlink()
        node.kill_daemon()
        (at / "new").mkdir()
        for number in range(50):  # of these some get the inode numbers of what was removed
            (at / f"new/{number}").write_bytes(b"new")
            (at / f"new-{number}").mkdir()
        looks: list[Callable[[], object]] = [
            lambda: os.fstat(held),
            lambda: os.stat(f"/proc/self/fd/{held}"),
            lambda: Path(f"/proc/self/fd/{held}").read_bytes(),
            lambda: os.chmod(f"/proc/self/fd/{held}", 0o777),
            lambda: os.fstat(directory),
            lambda: os.stat("0", dir_fd=directory),
            lambda: os.mkdir("made", dir_fd=directory),
        ]
        for look in looks:
            with pytest.raises(OSError) as refused:  # noqa: PT011 the number is the answer
                look()
            assert refused.value.errno in GONE
        assert set(process.communicate(b"\n")[0].split()) <= {b"ENOENT", b"ESTALE"}
        assert (os.fstat(opened.fileno()).st_nlink, opened.read()) == (0, b"open")
    os.close(directory)
    os.close(held)
    assert {(path.read_bytes(), path.stat().st_mode & 0o777) for path in (at / "new").iterdir()} == {(b"new", 0o644)}
    assert sorted(os.listdir(at)) == ["new", *sorted(f"new-{number}" for number in range(50))]
    assert all(path.stat().st_mode & 0o777 == 0o755 and not os.listdir(path) for path in at.glob("new-*"))
    node.stop()
