"""A cache that does not fill the disk."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from io import FileIO
from itertools import chain, repeat
from pathlib import Path

import pytest

from holdfast.control.client import RefusedError
from tests.conftest import NodeFactory
from tests.mount.test_objects import objects
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted_image
from tests.support.kernel.needs import needs_takeover
from tests.support.processes.programs import holdfast
from tests.support.users.privileges import ALICE, User

MIB = 1 << 20


def write(node: Node, *names: str) -> None:
    for name in names:
        (node.blobs / name).write_bytes(name.encode() * (MIB // len(name)))


def cached(node: Node) -> set[str]:
    with node.client() as client:
        return {os.path.basename(entry.path) for entry in client.entries(str(node.blobs)) if entry.state == "cached"}


def test_the_longest_unused_goes_first_and_comes_back_from_the_store(make_node: NodeFactory) -> None:
    writer = make_node("a").start()
    names = [f"blob-{letter}" for letter in "abcdef"]
    write(writer, *names)
    reader = make_node("b", cache__max_bytes=f"{int(3.5 * MIB)}", cache__low_watermark=1.0).start()
    for name in names:
        assert (reader.blobs / name).read_bytes().startswith(name.encode())
        assert reader.status().cached_bytes <= 3.5 * MIB
    assert cached(reader) == {"blob-d", "blob-e", "blob-f"}
    assert (reader.blobs / "blob-a").read_bytes().startswith(b"blob-a")
    assert reader.status().counters["files_evicted"] == 4


def test_what_is_open_or_pinned_stays(make_node: NodeFactory) -> None:
    writer = make_node("a").start()
    write(writer, "pinned", "opened", "other1", "other2", "other3")
    reader = make_node("b", cache__max_bytes=3 * MIB, cache__low_watermark=1.0).start()
    with reader.client() as client:
        client.pin(str(reader.blobs / "pinned"))
        (reader.blobs / "pinned").read_bytes()
        with (reader.blobs / "opened").open("rb") as file:
            for name in ("other1", "other2", "other3"):
                (reader.blobs / name).read_bytes()
            assert cached(reader) == {"pinned", "opened", "other3"}
            assert file.read().startswith(b"opened")
            with pytest.raises(RefusedError, match="open, pinned, or not in the store"):
                list(client.evict(str(reader.blobs / "opened")))
        client.unpin(str(reader.blobs / "pinned"))
        with pytest.raises(RefusedError, match="not pinned"):
            client.unpin(str(reader.blobs / "pinned"))


@pytest.mark.promise("disk-full")
def test_an_object_larger_than_the_cache_is_enospc_with_a_reason(make_node: NodeFactory) -> None:
    writer = make_node("a").start()
    (writer.blobs / "large").write_bytes(bytes(4 * MIB))
    reader = make_node("b", cache__max_bytes=2 * MIB).start()
    with pytest.raises(OSError, match="No space left"):
        (reader.blobs / "large").read_bytes()
    assert "raise cache.max_bytes" in reader.events("fetch-failed")[0]["problem"]
    assert list((reader.store / "fetching").iterdir()) == []


def test_what_was_just_closed_can_be_evicted(node: Node) -> None:
    names = [f"blob-{number:02}" for number in range(20)]
    with node.client() as client:
        for name in names:
            write(node, name)
            assert [step.done for step in client.evict(str(node.blobs / name)) if step.finished] == [1]
    assert cached(node) == set()


def test_unsent_files_are_never_evicted(node: Node) -> None:
    file = (node.checkpoints / "unsent").open("wb")
    file.write(b"only here")
    file.flush()
    with node.client() as client:
        assert list(client.evict(str(node.checkpoints)))[-1].done == 0
    file.close()
    assert (node.checkpoints / "unsent").read_bytes() == b"only here"


@pytest.mark.promise("cross-link-room")
def test_a_hard_linked_copy_goes_with_all_its_names_or_not_at_all(node: Node) -> None:
    (node.blobs / "one").write_bytes(b"data")
    os.link(node.blobs / "one", node.blobs / "two")
    (node.work / "worker_1").mkdir()
    (node.blobs / "shared").write_bytes(b"shared")
    os.link(node.blobs / "shared", node.work / "worker_1/tmp/shared")
    with node.client() as client:
        list(client.evict(str(node.blobs)))
    assert cached(node) == {"shared"}
    assert (node.blobs / "two").read_bytes() == b"data"
    assert (node.work / "worker_1/tmp/shared").read_bytes() == b"shared"


def test_the_reserve_is_kept_free_while_working_directories_grow(make_node: NodeFactory) -> None:
    node = make_node().start()
    free_bytes = node.status().free_bytes
    write(node, "one", "two", "three")
    node.stop()
    node.start(cache__min_free_bytes=free_bytes + (1 << 40))
    wait_until(lambda: cached(node) == set())
    assert (node.blobs.parent / "blobs").exists()


def test_prefetch_brings_a_whole_directory(make_node: NodeFactory) -> None:
    writer, reader = make_node("a").start(), make_node("b").start()
    (writer.blobs / "deep/er").mkdir(parents=True)
    write(writer, "deep/one", "deep/er/two", "deep/er/three")
    with reader.client() as client:
        last = list(client.prefetch(str(reader.blobs / "deep")))[-1]
    assert (last.done, last.total, last.finished) == (3, 3, True)
    before = reader.requests()["GET"]
    assert (reader.blobs / "deep/er/two").read_bytes().startswith(b"deep/er/two")
    assert reader.requests()["GET"] == before == 3
    assert objects(reader.directory.parent / "remote/blobs").keys() == {"deep/one", "deep/er/two", "deep/er/three"}


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with (disk / "ballast").open("ab", buffering=0) as file:
        size_bytes = MIB
        while size_bytes:
            try:
                file.write(bytes(size_bytes))
            except OSError:
                size_bytes //= 2
        os.fsync(file.fileno())


INODES = 2048


def take_inodes(node: Node, count: int) -> None:
    """Make so many entries of every kind."""
    home = node.work / "worker_1"
    home.mkdir()
    for number in range(0, count, 4):
        (home / f"{number}").touch()
        (home / f"{number + 1}").mkdir()
        (home / f"{number + 2}").symlink_to("x" * 10)
        os.mkfifo(home / f"{number + 3}")


@pytest.mark.promise("disk-full")
@pytest.mark.parametrize("passthrough", [True, False])
def test_copies_go_before_the_disk_is_out_of_inodes(
    make_node: NodeFactory, workspace: Path, remote_files: Path, passthrough: bool
) -> None:
    remote_files.mkdir(parents=True)
    for number in range(1200):
        (remote_files / f"{number:04}").write_bytes(b"x")
    with mounted_image("ext4", workspace / "disk", 64 * MIB, "-N", f"{INODES}") as disk:
        node = make_node(store__directory=disk / "store", mount__passthrough=passthrough).start()
        with node.client() as client:
            list(client.prefetch(str(node.checkpoints)))
        assert node.status().free_files < INODES - 1200
        take_inodes(node, 1600)
        assert node.status().counters["files_evicted"] >= 1600 - (INODES - 1200)
        assert (node.checkpoints / "0000").read_bytes() == b"x"
        node.stop()


@pytest.mark.promise("disk-full")
def test_directories_that_hold_nothing_but_evicted_copies_give_their_inodes_back(
    make_node: NodeFactory, workspace: Path, remote_files: Path
) -> None:
    for number in range(600):
        (remote_files / f"{number:04}").mkdir(parents=True)
        (remote_files / f"{number:04}" / "object").write_bytes(b"x")
    with mounted_image("ext4", workspace / "disk", 64 * MIB, "-N", f"{INODES}") as disk:
        node = make_node(store__directory=disk / "store").start()
        with node.client() as client:
            list(client.prefetch(str(node.checkpoints)))
            list(client.evict(str(node.checkpoints / "0000")))  # leaves an empty directory
        changed, held = node.checkpoints / "0001", node.checkpoints / "0002"
        changed.chmod(0o700)
        inside = os.open(held, os.O_RDONLY)
        with pytest.raises(OSError, match="No space left"):
            take_inodes(node, INODES)
        assert {path.name for path in (disk / "store/tree/checkpoints").iterdir()} == {"0001"}
        assert sorted(os.listdir(node.checkpoints)) == [f"{number:04}" for number in range(600)]
        assert os.listdir(inside) == ["object"]
        assert changed.stat().st_mode & 0o777 == 0o700
        os.close(inside)
        node.stop()


def fill_directory(path: Path) -> None:
    for number in range(INODES):
        (path / f"{number}").touch()


def test_out_of_inodes_is_told_and_goes_by(make_node: NodeFactory, workspace: Path) -> None:
    with mounted_image("ext4", workspace / "disk", 64 * MIB, "-N", f"{INODES}") as disk:
        node = make_node(store__directory=disk / "store", cache__min_free_share=0.05).start()
        home = node.work / "worker_1"
        home.mkdir()
        with pytest.raises(OSError, match="No space left"):
            fill_directory(home)
        event = node.wait_event("disk-full")
        assert event["of"] == "inodes"
        assert "bytes are no help" in event["problem"]
        assert "out of inodes" in holdfast("status", "--socket", node.socket)
        (node.checkpoints.parent / "work/worker_1/0").unlink()
        (home / "again").touch()
        for number in range(1, 200):
            (home / f"{number}").unlink()
        node.wait_event("disk-has-room-again")
        node.stop()


def write_all(path: Path, size_bytes: int) -> None:
    """Write as fast as the page cache takes it, and let nothing be written in part without an error."""
    block = bytes(MIB)
    with path.open("wb", buffering=0) as file:
        for _ in range(size_bytes // MIB):
            assert file.write(block) == MIB


@pytest.mark.promise("passthrough-room")
@pytest.mark.parametrize("passthrough", [True, False])
def test_no_writer_is_told_that_the_disk_is_full_while_copies_can_go(
    make_node: NodeFactory, workspace: Path, remote_files: Path, passthrough: bool
) -> None:
    """Three writers, and a disk that has room for one of them beside the copies.

    In passthrough they write less than the quarter below which this disk is scarce, so no delay of the daemon can matter.
    """
    each_bytes = (45 if passthrough else 100) * MIB
    remote_files.mkdir(parents=True)
    for number in range(10):
        with (remote_files / f"{number}").open("wb") as file:
            file.write(os.urandom(MIB) * 48)
    with mounted_image("ext4", workspace / "disk", 600 * MIB) as disk:
        node = make_node(store__directory=disk / "store", mount__passthrough=passthrough, cache__min_free_share=0.05).start()
        home = node.work / "worker_1"
        home.mkdir()
        for _ in range(2):
            for number in range(10):
                (node.checkpoints / f"{number}").read_bytes()
            with ThreadPoolExecutor(3) as writers:
                list(writers.map(write_all, [home / f"{number}" for number in range(3)], [each_bytes] * 3))
            for number in range(3):
                (home / f"{number}").unlink()
        node.stop()


def test_a_long_write_that_fills_the_disk_is_whole_when_copies_have_gone(
    make_node: NodeFactory, workspace: Path, remote_files: Path
) -> None:
    """The C module makes the first requests of it. What it fails with goes to Python, with all data."""
    remote_files.mkdir(parents=True)
    for number in range(8):
        (remote_files / f"{number}").write_bytes(os.urandom(2 * MIB))
    data = os.urandom(8 * MIB)
    with mounted_image("ext4", workspace / "disk", 96 * MIB, "-m", "0") as disk:
        node = make_node(store__directory=disk / "store", mount__passthrough=False, cache__min_free_share=0).start()
        with node.client() as client:
            list(client.prefetch(str(node.checkpoints)))
        with (disk / "other").open("wb") as other:
            os.posix_fallocate(other.fileno(), 0, node.status().free_bytes - 1_200_000)
        with (node.work / "file").open("wb", buffering=0) as file:
            assert file.write(data) == len(data)
        assert node.status().counters["files_evicted"] > 0
        assert (disk / "store/tree/work/file").read_bytes() == data
        node.stop()


@pytest.mark.promise("preallocation")
def test_a_preallocation_and_an_attribute_evict_what_they_need_and_no_more(
    make_node: NodeFactory, workspace: Path, remote_files: Path
) -> None:
    remote_files.mkdir(parents=True)
    for number in range(20):
        (remote_files / f"{number:02}").write_bytes(os.urandom(2 * MIB))
    with mounted_image("ext4", workspace / "disk", 96 * MIB, "-m", "0") as disk:
        node = make_node(store__directory=disk / "store", mount__passthrough=False).start()
        home = node.work / "worker_1"
        home.mkdir()
        with node.client() as client:
            list(client.prefetch(str(node.checkpoints)))
        before = node.status().counters["files_evicted"]
        with (home / "file").open("wb") as file:
            with pytest.raises(OSError, match="No space left"):
                os.setxattr(file.fileno(), "user.large", bytes(8000))  # more than a block of ext4 holds
            with pytest.raises(OSError, match="No space left"):
                os.posix_fallocate(file.fileno(), 0, 1 << 40)
            assert node.status().counters["files_evicted"] == before
            free_bytes = node.status().free_bytes
            os.posix_fallocate(file.fileno(), 0, free_bytes + 8 * MIB)
            assert 4 <= node.status().counters["files_evicted"] - before <= 6
        node.stop()


@pytest.mark.promise("disk-full")
def test_what_is_cached_is_read_from_a_full_disk(make_node: NodeFactory, workspace: Path, remote_files: Path) -> None:
    remote_files.mkdir(parents=True)
    names = [f"{number:04}" for number in range(1000)]
    for name in names:
        (remote_files / name).write_bytes(name.encode())
    with mounted_image("ext4", workspace / "disk", 64 * MIB, "-m", "0") as disk:
        node = make_node(store__directory=disk / "store").start()
        with node.client() as client:
            list(client.prefetch(str(node.checkpoints)))
        fill(disk)
        for _ in range(2):
            assert [(node.checkpoints / name).read_bytes() for name in names] == [name.encode() for name in names]
            node.stop()
            fill(disk)
            node.start()
        assert node.requests().get("GET", 0) == 0
        (node.checkpoints / names[0]).unlink()
        with node.client() as client:
            assert list(client.evict(str(node.checkpoints / names[1])))[-1].done == 1
        assert (node.checkpoints / names[2]).read_bytes() == names[2].encode()
        node.stop()


@pytest.mark.promise("reserved-blocks")
@pytest.mark.parametrize("passthrough", [True, False])
def test_what_the_file_system_keeps_for_root_stays_roots(make_node: NodeFactory, workspace: Path, passthrough: bool) -> None:
    with mounted_image("ext4", workspace / "disk", 64 * MIB, "-m", "20", "-N", "20000") as disk:
        node = make_node(store__directory=disk / "store", mount__passthrough=passthrough).start()
        home = node.work / "worker_1"
        home.mkdir()
        before = os.statvfs(disk)
        kept = before.f_bfree - before.f_bavail
        assert kept > 8 * MIB // before.f_frsize
        with (home / "file").open("wb", buffering=0) as file:
            with pytest.raises(OSError, match="No space left"):
                write_on(file)
            with pytest.raises(OSError, match="No space left"):
                os.posix_fallocate(file.fileno(), 0, 60 * MIB)
        with pytest.raises(OSError, match="No space left"):
            fill_with_directories(home)
        assert os.statvfs(disk).f_bfree >= 0.9 * kept
        assert list((disk / "store").iterdir())
        (disk / "roots").write_bytes(bytes(4 * MIB))
        node.stop()


def until_free(change: Callable[[], object]) -> None:
    """Make a change of an open file, again if it gets EBUSY because the disk is slow: then it may also be made late."""
    for has_been_tried in chain([False], repeat(True)):
        try:
            change()
            return
        except FileNotFoundError:
            if not has_been_tried:
                raise
            return
        except OSError as problem:
            if problem.errno != errno.EBUSY:
                raise


@pytest.mark.promise("disk-full")
@pytest.mark.parametrize("passthrough", [True, False])
@pytest.mark.parametrize("user", [User(0, 0), ALICE], ids=["root", "user"])
@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_open_files_can_be_removed_and_replaced_on_a_full_disk(
    make_node: NodeFactory, workspace: Path, kind: str, user: User, passthrough: bool
) -> None:
    """Gain: without room for the name by which the next daemon would find the file, nothing could be deleted."""
    options = ["-m", "0"] if kind == "ext4" else []
    with mounted_image(kind, workspace / "disk", 128 * MIB, *options) as disk:
        node = make_node(store__directory=disk / "store", mount__passthrough=passthrough).start()
        home = node.work / "worker_1"

        def works() -> None:
            home.mkdir()
            for number in range(150):
                (home / f"new{number}").touch()
            files = [(home / f"{number}").open("wb", buffering=0) for number in range(150)]
            for file in files:
                file.write(b"x" * 5000)
            fill(home)
            for number in range(150):
                new, old = home / f"new{number}", home / f"{number}"
                until_free(partial(new.rename, old) if number % 2 else old.unlink)
            for file in files:
                file.close()

        user.do(works)
        assert sorted(int(path.name) for path in home.glob("[0-9]*")) == [*range(1, 150, 2)]
        node.stop()


@needs_takeover
@pytest.mark.promise("disk-full")
def test_a_file_that_was_removed_on_a_full_disk_is_there_or_gives_eio_after_a_takeover(
    make_node: NodeFactory, workspace: Path
) -> None:
    with mounted_image("ext4", workspace / "disk", 128 * MIB, "-m", "0") as disk:
        node = make_node(store__directory=disk / "store")
        node.supervised = True
        node.start()
        home = node.work / "worker_1"
        home.mkdir()
        files = [(home / f"{number}").open("wb", buffering=0) for number in range(600)]
        for file in files:
            file.write(b"x" * 5000)
        fill(home)
        for number in range(400):  # fewer than the next daemon is told of
            (home / f"{number}").unlink()
        node.kill_daemon()
        outcomes = Counter(outcome_of(partial(os.fsync, file.fileno())) for file in files)
        for file in files:
            with suppress(OSError):
                file.close()
        assert outcomes.keys() <= {0, errno.EIO}
        assert "can't be opened again" in node.log.read_text(), "there must have been no room for some orphans' names"
        node.stop()


@needs_takeover
@pytest.mark.promise("disk-full")
@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_copies_go_before_an_open_file_is_lost_to_the_next_daemon(
    make_node: NodeFactory, workspace: Path, remote_files: Path, replaced: bool
) -> None:
    """Gain: where the disk was filled past the daemon, the files' names were given up though copies could have gone."""
    remote_files.mkdir(parents=True)
    for number in range(8):
        (remote_files / f"object{number}").write_bytes(bytes(MIB))
    with mounted_image("ext4", workspace / "disk", 128 * MIB, "-m", "0") as disk:
        node = make_node(
            store__directory=disk / "store", cache__min_free_bytes=0, cache__min_free_share=0, mount__passthrough=False
        )
        node.supervised = True
        node.start()
        home = node.work / "worker_1"
        home.mkdir()
        for number in range(400):
            (home / f"{number}").write_bytes(b"x" * 5000)
            (home / f"new{number}").touch()
        for number in range(8):
            (node.checkpoints / f"object{number}").read_bytes()
        files = [(home / f"{number}").open("rb", buffering=0) for number in range(400)]
        fill(disk)
        assert node.status().counters["files_evicted"] == 0
        for number in range(400):
            (home / f"new{number}").rename(home / f"{number}") if replaced else (home / f"{number}").unlink()
        node.kill_daemon()
        assert {os.pread(file.fileno(), 5000, 0) for file in files} == {b"x" * 5000}
        for file in files:
            file.close()
        node.stop()


@pytest.mark.promise("disk-full")
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_daemon_takes_over_on_a_full_disk(make_node: NodeFactory, workspace: Path, remote_files: Path, kind: str) -> None:
    """Gain: no daemon could start, and whoever worked in the mount waited until somebody made room past it."""
    remote_files.mkdir(parents=True)
    (remote_files / "object").write_bytes(b"cached")
    options = ["-m", "0"] if kind == "ext4" else []
    with mounted_image(kind, workspace / "disk", 320 * MIB, *options) as disk:
        node = make_node(store__directory=disk / "store")
        node.supervised = True
        node.start()
        with node.client() as client:
            client.pin(str(node.checkpoints))
        assert (node.checkpoints / "object").read_bytes() == b"cached"
        with (node.work / "open").open("w+b", buffering=0) as file:
            file.write(b"before")
            fill(disk)
            for _ in range(2):
                node.kill_daemon()
                assert (node.checkpoints / "object").read_bytes() == b"cached"
                wait_until(node.answers)
            assert node.events("takeover-failed") == []
            assert os.pread(file.fileno(), 10, 0) == b"before"
        (node.work / "open").unlink()
        node.stop()


def outcome_of(call: Callable[[], object]) -> int:
    """Return the errno of a call, 0 for a success."""
    try:
        call()
    except OSError as problem:
        return problem.errno or -1
    return 0


def write_on(file: FileIO) -> None:
    while True:
        file.write(bytes(MIB))


def fill_with_directories(path: Path) -> None:
    for number in range(10_000):
        (path / f"{number}").mkdir()
