"""Files on their way in or out of the tree, and files that must not be served again."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import FileBusyError
from holdfast.store import Freeing, Orphanage, OutsideCalls, Quarantine, Staging, Trash
from holdfast.system.file_id import FileId
from tests.support.processes.descriptors import open_below
from tests.support.users.privileges import as_nobody, needs_root

pytestmark = pytest.mark.slow

OpenDirectory = Callable[[str], int]


@pytest.fixture
def open_directory(tmp_path: Path) -> Iterator[OpenDirectory]:
    fds = []

    def open_it(name: str) -> int:
        (tmp_path / name).mkdir()
        fds.append(os.open(tmp_path / name, os.O_RDONLY | os.O_DIRECTORY))
        return fds[-1]

    yield open_it
    for fd in fds:
        os.close(fd)
    assert open_below(tmp_path) == []


@pytest.fixture
def tree(tmp_path: Path, open_directory: OpenDirectory) -> Path:
    open_directory("tree")
    return tmp_path / "tree"


@pytest.fixture
def tree_fd(tree: Path) -> Iterator[int]:
    fd = os.open(tree, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


# --- staging ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def staging(open_directory: OpenDirectory) -> Staging:
    return Staging(open_directory("fetching"))


def test_a_staged_file_has_its_room_and_a_name_of_its_own(staging: Staging, tmp_path: Path) -> None:
    staged = [staging.create(size) for size in (0, 5000, 5000)]
    assert len({name for name, _ in staged}) == 3
    for (name, fd), size in zip(staged, (0, 5000, 5000), strict=True):
        stat = (tmp_path / "fetching" / name.decode()).stat()
        assert stat.st_size == size
        assert stat.st_blocks * 512 >= size
        assert stat.st_mode & 0o777 == 0o600
        os.pwrite(fd, b"x", 0)
        os.close(fd)


def test_a_staged_file_is_placed_once(staging: Staging, tree: Path, tree_fd: int) -> None:
    name, fd = staging.create(0)
    os.write(fd, b"new")
    os.close(fd)
    staging.place(name, tree_fd, b"name")
    assert (tree / "name").read_text() == "new"
    assert staging.clear() == 0
    with pytest.raises(FileNotFoundError):
        staging.place(name, tree_fd, b"other")


def test_a_staged_file_takes_no_place_that_is_taken(staging: Staging, tree: Path, tree_fd: int) -> None:
    (tree / "name").write_text("what came to be here meanwhile")
    name, fd = staging.create(0)
    os.close(fd)
    with pytest.raises(FileExistsError):
        staging.place(name, tree_fd, b"name")
    assert (tree / "name").read_text() == "what came to be here meanwhile"
    assert staging.clear() == 1


def test_a_staged_file_can_be_given_up_more_than_once(staging: Staging) -> None:
    name, fd = staging.create(5)
    os.close(fd)
    staging.discard(name)
    staging.discard(name)
    assert staging.clear() == 0


def test_a_full_disk_leaves_nothing_staged(staging: Staging, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def disk_full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", disk_full)
    with pytest.raises(OSError, match="No space left"):
        staging.create(5)
    assert os.listdir(tmp_path / "fetching") == []


def test_room_that_no_disk_has_is_refused_and_leaves_nothing(staging: Staging, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No space left|File too large"):
        staging.create(2**60)
    assert os.listdir(tmp_path / "fetching") == []


class RefusingDisk:
    """A disk that refuses to remove anything until it is mended."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch, self._unlink, self.asked = patch, os.unlink, list[bytes]()
        patch.setattr(os, "unlink", self._refuse)

    def mend(self) -> None:
        self._patch.setattr(os, "unlink", self._unlink)

    def _refuse(self, name: bytes, *, dir_fd: int) -> None:
        self.asked.append(name)
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def refusing_disk(monkeypatch: pytest.MonkeyPatch) -> RefusingDisk:
    return RefusingDisk(monkeypatch)


def test_what_the_disk_keeps_of_given_up_files_goes_when_it_can(
    staging: Staging, refusing_disk: RefusingDisk, tmp_path: Path
) -> None:
    """Gain: the fetch that was given up ended the daemon. Only a few are tried at a time: the event loop waits for them."""
    names = []
    for _ in range(7):
        name, fd = staging.create(5)
        os.close(fd)
        names.append(name)
    for name in names[:6]:
        staging.discard(name)
    assert len(os.listdir(tmp_path / "fetching")) == 7
    refusing_disk.asked.clear()
    staging.discard(names[6])
    assert len(refusing_disk.asked) == 5
    refusing_disk.mend()
    for _ in range(2):
        staging.discard(names[6])
    assert os.listdir(tmp_path / "fetching") == []


def test_a_full_disk_that_keeps_the_staged_file_too_is_a_full_disk(
    staging: Staging, refusing_disk: RefusingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", disk_full)
    with pytest.raises(OSError, match="No space left"):
        staging.create(5)
    refusing_disk.mend()


def test_what_a_crash_left_is_cleared(staging: Staging, tmp_path: Path) -> None:
    directory = tmp_path / "fetching"
    (directory / "1").touch()
    (directory / os.fsdecode(b"\xff")).touch()
    (directory / "deep" / "er").mkdir(parents=True)
    (directory / "deep" / "er" / "file").touch()
    (directory / "link").symlink_to(tmp_path)
    (tmp_path / "precious").touch()
    assert staging.clear() == 4
    assert os.listdir(directory) == []
    assert (tmp_path / "precious").exists()


# --- orphans ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def orphanage(open_directory: OpenDirectory) -> Orphanage:
    return Orphanage(open_directory("orphans"), OutsideCalls())


def test_an_orphan_lives_until_it_is_released(orphanage: Orphanage, tree: Path, tree_fd: int, tmp_path: Path) -> None:
    file = tree / "name"
    file.write_text("still open")
    inode = file.stat().st_ino
    orphanage.take(tree_fd, b"name", FileId(inode))
    assert os.listdir(tree) == []
    assert (tmp_path / "orphans" / str(inode)).read_text() == "still open"
    orphanage.release(FileId(inode))
    orphanage.release(FileId(inode))
    assert orphanage.clear() == 0


def test_an_orphan_that_the_disk_keeps_goes_with_the_next_one(
    orphanage: Orphanage, tree: Path, tree_fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gain: the file counted as open for ever, and if it was closed in the background, the daemon ended."""
    for name in ("first", "second"):
        (tree / name).touch()
    first, second = (FileId((tree / name).stat().st_ino) for name in ("first", "second"))
    orphanage.take(tree_fd, b"first", first)
    orphanage.take(tree_fd, b"second", second)
    disk = RefusingDisk(monkeypatch)
    orphanage.release(first)
    assert len(os.listdir(tmp_path / "orphans")) == 2
    disk.mend()
    orphanage.release(second)
    assert os.listdir(tmp_path / "orphans") == []


def test_a_name_that_the_disk_has_kept_makes_way_for_the_same_file(
    orphanage: Orphanage, tree: Path, tree_fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rename(2) of one name of a file over another one removes none, and so the file would have stayed in the tree."""
    (tree / "name").touch()
    inode = FileId((tree / "name").stat().st_ino)
    orphanage.shelter(tree_fd, b"name", inode)
    disk = RefusingDisk(monkeypatch)
    orphanage.release(inode)
    with pytest.raises(OSError, match="Input/output error"):
        orphanage.take(tree_fd, b"name", inode)
    disk.mend()
    orphanage.take(tree_fd, b"name", inode)
    assert (os.listdir(tree), os.listdir(tmp_path / "orphans")) == ([], [str(inode)])
    orphanage.release(FileId(1))
    assert os.listdir(tmp_path / "orphans") == [str(inode)]


def test_a_sheltered_file_survives_a_rename_over_its_name(orphanage: Orphanage, tree: Path, tree_fd: int) -> None:
    old, new = tree / "old", tree / "new"
    old.write_text("old")
    new.write_text("new")
    inode = old.stat().st_ino
    orphanage.shelter(tree_fd, b"old", FileId(inode))
    new.rename(old)
    assert old.read_text() == "new"
    assert (orphanage.clear(), os.listdir(tree)) == (1, ["old"])


def test_a_file_can_be_sheltered_again(orphanage: Orphanage, tree: Path, tree_fd: int) -> None:
    (tree / "name").touch()
    inode = (tree / "name").stat().st_ino
    orphanage.shelter(tree_fd, b"name", FileId(inode))
    orphanage.shelter(tree_fd, b"name", FileId(inode))
    assert (tree / "name").stat().st_nlink == 2


def test_a_symbolic_link_is_sheltered_itself(orphanage: Orphanage, tree: Path, tree_fd: int, tmp_path: Path) -> None:
    (tree / "link").symlink_to("nowhere")
    inode = (tree / "link").lstat().st_ino
    orphanage.shelter(tree_fd, b"link", FileId(inode))
    assert os.readlink(tmp_path / "orphans" / str(inode)) == "nowhere"


# --- trash ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def trash(open_directory: OpenDirectory) -> Trash:
    return Trash(open_directory("trash"), Freeing(OutsideCalls()))


def test_trees_are_out_of_sight_at_once_and_deleted_later(trash: Trash, tree: Path, tree_fd: int, tmp_path: Path) -> None:
    for _ in range(3):
        (tree / "tmp" / "deep").mkdir(parents=True)
        (tree / "tmp" / "deep" / "file").touch()
        trash.throw(tree_fd, b"tmp")
        assert os.listdir(tree) == []
    assert trash.empty() == 0, "what is open in it has no name elsewhere yet"
    assert len(os.listdir(tmp_path / "trash")) == 3
    trash.give_up()
    assert trash.empty() == 3
    assert trash.empty() == 0


def test_what_an_earlier_run_threw_away_is_not_in_the_way(trash: Trash, tree: Path, tree_fd: int, tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / "trash" / name).mkdir()
    (tree / "tmp").mkdir()
    trash.throw(tree_fd, b"tmp")
    assert sorted(os.listdir(tmp_path / "trash")) == ["1", "2", "3"]


def test_throwing_what_is_not_there_is_told(trash: Trash, tree_fd: int) -> None:
    with pytest.raises(FileNotFoundError):
        trash.throw(tree_fd, b"missing")


@needs_root
def test_what_resists_deletion_does_not_keep_the_rest(workspace: Path) -> None:
    directory = workspace / "trash"
    (directory / "theirs").mkdir(parents=True)
    (directory / "theirs" / "file").touch()
    (directory / "ours").mkdir()
    directory.chmod(0o777)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    as_nobody(Trash(fd, Freeing(OutsideCalls())).empty)
    (aside,) = os.listdir(directory)
    assert os.listdir(directory / aside) == ["file"]
    as_nobody(lambda: [Trash(fd, Freeing(OutsideCalls())).empty()] == [0] or pytest.fail("it was tried again"))
    os.close(fd)
    assert os.listdir(directory) == [aside]


# --- quarantine -------------------------------------------------------------------------------------------------------


class Clock:
    """Nanoseconds that pass only when told to."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000

    def __call__(self) -> int:
        return self.seconds * 10**9


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quarantine(open_directory: OpenDirectory, clock: Clock) -> Quarantine:
    return Quarantine(open_directory("quarantine"), clock)


def take(quarantine: Quarantine, tree: Path, tree_fd: int, content: str = "corrupt", path: str = "checkpoints/name") -> str:
    (tree / "name").write_text(content)
    kept: list[str] = []
    quarantine.take(tree_fd, b"name", {"why": "digest", "path": path}, kept.append)
    return kept[0]


def test_a_file_is_kept_aside_with_its_reason(
    quarantine: Quarantine, tree: Path, tree_fd: int, tmp_path: Path, clock: Clock
) -> None:
    kept = take(quarantine, tree, tree_fd)
    assert os.listdir(tree) == []
    assert (tmp_path / "quarantine" / kept).read_text() == "corrupt"
    (file,) = quarantine.files()
    assert (file.name, file.size_bytes, file.since) == (kept, 7, clock.seconds)
    assert file.reason == {"why": "digest", "path": "checkpoints/name"}


def test_two_files_of_one_moment_are_both_kept(quarantine: Quarantine, tree: Path, tree_fd: int) -> None:
    assert take(quarantine, tree, tree_fd) != take(quarantine, tree, tree_fd)
    assert len(quarantine.files()) == 2


def test_a_name_that_is_taken_is_not_overwritten(
    quarantine: Quarantine, tree: Path, tree_fd: int, tmp_path: Path, clock: Clock
) -> None:
    taken = tmp_path / "quarantine" / f"{clock()}-1"
    taken.write_text("earlier")
    kept = take(quarantine, tree, tree_fd)
    assert kept == f"{clock()}-2"
    assert taken.read_text() == "earlier"


def test_files_come_oldest_first_and_expire_by_the_time_they_came(
    quarantine: Quarantine, tree: Path, tree_fd: int, tmp_path: Path, clock: Clock
) -> None:
    kept = []
    for _ in range(3):
        kept.append(take(quarantine, tree, tree_fd))
        clock.seconds += 3600
    os.chmod(tmp_path / "quarantine" / kept[0], 0o600)  # its last change is now
    assert [file.name for file in quarantine.files()] == kept
    assert quarantine.expire(clock.seconds - 3 * 3600) == 0
    assert quarantine.expire(clock.seconds - 3600) == 2
    assert [file.name for file in quarantine.files()] == kept[2:]
    assert sorted(os.listdir(tmp_path / "quarantine")) == [kept[2], f"{kept[2]}.json"]
    assert quarantine.expire(clock.seconds) == 1
    assert os.listdir(tmp_path / "quarantine") == []


@pytest.mark.parametrize("reason", [None, b"", b"{", b"[]", b"5", b'"text"', b"\xff"])
def test_a_reason_that_is_missing_or_damaged_keeps_nothing_from_expiring(
    quarantine: Quarantine, tree: Path, tree_fd: int, tmp_path: Path, clock: Clock, reason: bytes | None
) -> None:
    kept = take(quarantine, tree, tree_fd)
    file = tmp_path / "quarantine" / f"{kept}.json"
    if reason is None:
        file.unlink()
    else:
        file.write_bytes(reason)
    assert quarantine.files()[0].reason == {}
    assert quarantine.expire(clock.seconds + 1) == 1
    assert os.listdir(tmp_path / "quarantine") == []


def test_a_file_leaves_the_tree_even_when_its_reason_can_not_be_written(
    quarantine: Quarantine, tree: Path, tree_fd: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real_open = os.open

    def disk_full(name: str, flags: int, *arguments: int, **options: int) -> int:
        if str(name).endswith(".json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_open(name, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", disk_full)
    with caplog.at_level(logging.WARNING):
        kept = take(quarantine, tree, tree_fd)
    monkeypatch.undo()
    assert os.listdir(tree) == []
    assert [file.name for file in quarantine.files()] == [kept]
    assert "No space left on device" in caplog.text


def test_what_a_person_put_there_is_dated_by_its_last_change(quarantine: Quarantine, tmp_path: Path) -> None:
    file = tmp_path / "quarantine" / "note"
    file.write_text("mine")
    (found,) = quarantine.files()
    assert (found.name, found.reason) == ("note", {})
    assert found.since == file.stat().st_ctime


def test_a_directory_that_a_person_put_there_stays(quarantine: Quarantine, tree: Path, tree_fd: int, tmp_path: Path) -> None:
    (tmp_path / "quarantine/looked at").mkdir()
    kept = take(quarantine, tree, tree_fd)
    assert [file.name for file in quarantine.files()] == [kept]
    assert quarantine.expire(time.time() + 10**9) == 1
    assert os.listdir(tmp_path / "quarantine") == ["looked at"]


def test_reasons_may_hold_any_file_name(quarantine: Quarantine, tree: Path, tree_fd: int, tmp_path: Path) -> None:
    path = os.fsdecode(b"work/\xff\n\xc3\xa4")
    kept = take(quarantine, tree, tree_fd, path=path)
    assert quarantine.files()[0].reason == {"why": "digest", "path": path}
    json.loads((tmp_path / "quarantine" / f"{kept}.json").read_bytes())


def test_a_file_that_is_gone_is_told(quarantine: Quarantine, tree_fd: int) -> None:
    with pytest.raises(FileNotFoundError):
        quarantine.take(tree_fd, b"missing", {}, lambda _: None)
    assert quarantine.files() == []


def test_a_file_that_comes_late_gets_its_reason_then(quarantine: Quarantine, tree: Path, tree_fd: int) -> None:
    (tree / "name").touch()
    late: list[Callable[[], None]] = []
    kept: list[str] = []

    def rename(source_fd: int, old: bytes, target_fd: int, new: bytes, then: Callable[[], None]) -> None:
        os.rename(old, new, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        late.append(then)
        raise FileBusyError("not yet")

    with pytest.raises(FileBusyError):
        quarantine.take(tree_fd, b"name", {"why": "digest"}, kept.append, rename)
    assert ([file.reason for file in quarantine.files()], kept) == ([{}], [])
    late[0]()
    assert [(file.name, file.reason) for file in quarantine.files()] == [(kept[0], {"why": "digest"})]
