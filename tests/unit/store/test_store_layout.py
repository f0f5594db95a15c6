"""The store directory: made, found again, and refused, in which case it is left as it was."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import StoreInUseError, StoreUnsuitableError
from holdfast.store import FORMAT_VERSION, SPREAD_FORMAT_VERSION, StoreDirectory, disk_space
from tests.support.disks.mounts import mounted, mounted_read_only
from tests.support.processes.descriptors import open_below
from tests.support.users.privileges import as_nobody, needs_root

pytestmark = pytest.mark.slow

SUBDIRECTORIES = ["fetching", "index", "orphans", "quarantine", "trash", "tree"]


@pytest.fixture
def path(workspace: Path) -> Path:
    return workspace / "store"


def contents(path: Path) -> dict[str, bytes]:
    """Return what is in a directory, and what is in its files."""
    return {str(file.relative_to(path)): file.read_bytes() if file.is_file() else b"" for file in path.rglob("*")}


@pytest.fixture(autouse=True)
def no_descriptor_leaks(workspace: Path) -> Iterator[None]:
    yield
    assert open_below(workspace) == []


def refused(path: Path, kind: type[Exception] = StoreUnsuitableError) -> str:
    """Return why ``path`` can't be a store, after looking that it was left as it was."""
    before = contents(path) if path.is_dir() else path.exists()
    with pytest.raises(kind) as caught:
        StoreDirectory.open(path)
    assert (contents(path) if path.is_dir() else path.exists()) == before
    return str(caught.value)


# --- stores that can be used ------------------------------------------------------------------------------------------


def test_a_missing_directory_is_made_for_its_user_only(workspace: Path) -> None:
    path = workspace / "deeper" / "store"
    store = StoreDirectory.open(path)
    assert path.stat().st_mode & 0o777 == 0o700
    assert sorted(os.listdir(path)) == sorted(["format.json", "held", "lock", *SUBDIRECTORIES])
    assert json.loads((path / "format.json").read_text()) == {"format": FORMAT_VERSION, "store": store.store_id}
    assert (path / "lock").read_text() == f"{os.getpid()}\n"
    store.close()


def test_a_store_is_found_again_with_its_id(path: Path) -> None:
    first = StoreDirectory.open(path)
    (path / "tree" / "file").write_text("kept")
    first.close()
    again = StoreDirectory.open(path)
    assert again.store_id == first.store_id
    assert again.tree.stat(b"file").st_size == 4
    assert again.index_path == path / "index"
    again.close()


def test_two_stores_have_different_ids(workspace: Path) -> None:
    stores = [StoreDirectory.open(workspace / name) for name in "ab"]
    assert stores[0].store_id != stores[1].store_id
    for store in stores:
        store.close()


@pytest.mark.parametrize("left", ["lock", ".new-format.json", ".probe-file", ".probe-link", "lost+found"])
def test_what_a_crash_or_mkfs_left_in_an_empty_directory_is_no_obstacle(path: Path, left: str) -> None:
    path.mkdir()
    (path / left).touch()
    StoreDirectory.open(path).close()
    assert not list(path.glob(".probe-*"))


def test_the_lock_ends_with_the_process_that_holds_it(path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        StoreDirectory.open(path)
        os._exit(0)
    os.waitpid(pid, 0)
    StoreDirectory.open(path).close()


def test_the_room_on_the_disk_is_that_of_its_file_system(path: Path) -> None:
    store = StoreDirectory.open(path)
    stats = os.statvfs(path)
    found = disk_space(store.tree.root_fd)
    assert 0 < found.free_bytes < found.size_bytes == stats.f_blocks * stats.f_frsize
    assert 0 <= found.free_files <= found.files == stats.f_files
    store.close()


# --- stores that are refused ------------------------------------------------------------------------------------------


def test_a_store_in_use_is_refused_and_names_the_holder(path: Path) -> None:
    store = StoreDirectory.open(path)
    assert f"is in use by another daemon (pid {os.getpid()})" in refused(path, StoreInUseError)
    store.close()
    StoreDirectory.open(path).close()


def test_a_store_in_use_whose_holder_is_not_written_down(path: Path) -> None:
    store = StoreDirectory.open(path)
    os.truncate(path / "lock", 0)
    assert "(pid unknown)" in refused(path, StoreInUseError)
    store.close()


@pytest.mark.parametrize("version", [0, 3, 99])
def test_a_store_of_another_format_is_refused_with_both_versions(path: Path, version: int) -> None:
    path.mkdir()
    (path / "format.json").write_text(json.dumps({"format": version, "store": "x", "new": True}))
    message = refused(path)
    assert f"has format {version}, this Holdfast reads formats {FORMAT_VERSION} and {SPREAD_FORMAT_VERSION}" in message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b'{"format": 1}',
        b'{"store": "x"}',
        b'{"format": "1", "store": "x"}',
        b'{"format": 1, "store": null}',
        b'{"format": 1, "store": "\xff"}',
        b"\x00" * 50,
    ],
)
def test_a_damaged_format_file_is_refused(path: Path, content: bytes) -> None:
    path.mkdir()
    (path / "format.json").write_bytes(content)
    assert "format.json is damaged" in refused(path)


def test_a_directory_that_holds_something_else_is_refused(path: Path) -> None:
    (path / "sub").mkdir(parents=True)
    for name in "dcba":
        (path / name).write_text("precious")
    assert "is not empty and not a store (it holds a, b, c)" in refused(path)


def test_a_file_is_no_store(workspace: Path) -> None:
    file = workspace / "file"
    file.write_text("precious")
    assert "Not a directory" in refused(file)
    assert "Not a directory" in refused(file / "store")
    assert file.read_text() == "precious"


@pytest.mark.parametrize("name", SUBDIRECTORIES)
def test_a_store_whose_parts_lead_elsewhere_is_refused(path: Path, workspace: Path, name: str) -> None:
    StoreDirectory.open(path).close()
    elsewhere = workspace / "elsewhere"
    elsewhere.mkdir()
    (path / name).rmdir()
    (path / name).symlink_to(elsewhere)
    (path / "lock").write_text("4711\n")
    assert f"{path / name}: " in refused(path)


def test_a_format_file_that_is_a_directory(path: Path) -> None:
    (path / "format.json").mkdir(parents=True)
    assert "format.json: Is a directory" in refused(path)


def test_a_store_in_memory_is_refused_and_not_even_made() -> None:
    directory = Path("/dev/shm")
    if not directory.is_dir() or os.stat(directory).st_dev == os.stat("/dev").st_dev:
        pytest.skip("no tmpfs on /dev/shm")
    missing = directory / f"holdfast-test-{os.getpid()}" / "store"
    assert "is on tmpfs, which a reboot empties; set store.directory" in refused(missing)
    assert not missing.parent.exists()


@needs_root
def test_a_file_system_without_hard_links_is_refused(path: Path) -> None:
    with mounted("mqueue", path):
        assert "is on mqueue, which can't make hard links (Operation not permitted)" in refused(path)


@needs_root
@pytest.mark.parametrize("place", ["tree/work/executor_1", "orphans"])
def test_a_store_with_another_file_system_in_it_is_refused(path: Path, place: str) -> None:
    StoreDirectory.open(path).close()
    with mounted("tmpfs", path / place):
        expected = f"something is mounted on {path / place}, but all files of the store directory {path} must be on one"
        assert expected in refused(path)
        with pytest.raises(StoreUnsuitableError, match="something is mounted"):
            StoreDirectory.check(path)
    StoreDirectory.open(path).close()


@needs_root
def test_an_index_on_a_disk_of_its_own_is_none_of_the_files(path: Path) -> None:
    StoreDirectory.open(path).close()
    with mounted("tmpfs", path / "index"):
        StoreDirectory.open(path).close()


@needs_root
def test_a_disk_that_takes_no_writes_has_failed(path: Path, workspace: Path) -> None:
    StoreDirectory.open(path).close()
    before = contents(path)
    (path / ".probe-disk").touch()  # as a crash leaves it
    assert not StoreDirectory.has_failed(path)
    assert contents(path) == before
    with mounted_read_only(workspace, workspace / "shown") as shown:
        assert StoreDirectory.has_failed(shown / path.name)
    assert not StoreDirectory.has_failed(workspace / "missing")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_hard_links_that_fail_for_whatever_reason(path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), source, None, target)

    path.mkdir()
    monkeypatch.setattr(os, "link", no_links)
    message = refused(path)
    assert "can't make hard links" in message
    assert os.strerror(number) in message


@needs_root
def test_a_read_only_file_system_is_refused(path: Path, workspace: Path) -> None:
    StoreDirectory.open(path).close()
    with mounted_read_only(workspace, workspace / "shown") as shown:
        assert "Read-only file system" in refused(shown / "store")
        assert "Read-only file system" in refused(shown / "new")


@needs_root
def test_a_directory_that_this_user_may_not_write_to_is_refused(workspace: Path) -> None:
    ours, empty, closed = workspace / "ours", workspace / "empty", workspace / "closed"
    StoreDirectory.open(ours).close()
    empty.mkdir(mode=0o755)
    closed.mkdir(mode=0o700)

    def try_all() -> None:
        for path in (ours, empty, closed / "store", workspace / "missing"):
            with pytest.raises(StoreUnsuitableError, match="Permission denied; make it a directory that this user may"):
                StoreDirectory.open(path)
        with pytest.raises(StoreUnsuitableError, match=f"the store directory {workspace / 'a'} can't be used: Permission"):
            StoreDirectory.open(workspace / "a")

    before = contents(workspace)
    as_nobody(try_all)
    assert contents(workspace) == before


@needs_root
def test_a_user_who_is_not_root_has_a_store_of_their_own(workspace: Path) -> None:
    workspace.chmod(0o777)
    as_nobody(lambda: StoreDirectory.open(workspace / "store").close())
    assert (workspace / "store").stat().st_uid != 0


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_store_that_can_not_be_begun_is_taken_away_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def disk_full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = workspace / "deeper" / "store"
    monkeypatch.setattr(os, failing, disk_full)
    assert "No space left on device" in refused(path)
    assert not path.parent.exists()


def test_an_open_store_that_fails_half_way_gives_its_lock_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StoreDirectory.open(path).close()
    real_open: Callable[..., int] = os.open

    def too_many_files(name: object, *arguments: object, **options: object) -> int:
        if str(name).endswith("trash"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)
        return real_open(name, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", too_many_files)
        before = sorted(contents(path))
        with pytest.raises(StoreUnsuitableError, match=f"{path / 'trash'}: Too many open files"):
            StoreDirectory.open(path)
    assert sorted(contents(path)) == before
    StoreDirectory.open(path).close()


def test_another_disk_on_the_same_file_system_is_refused_and_nothing_is_left(path: Path, workspace: Path) -> None:
    other = workspace / "other"
    other.mkdir()
    for step in (StoreDirectory.check, StoreDirectory.open):
        with pytest.raises(StoreUnsuitableError, match=f"the other disk {other} is on the same file system as {path}"):
            step(path, [other])
    assert not path.exists()
    assert os.listdir(other) == []


def test_a_directory_for_another_disk_is_not_made(path: Path, workspace: Path) -> None:
    for step in (StoreDirectory.check, StoreDirectory.open):
        with pytest.raises(StoreUnsuitableError, match="can't be used: No such file or directory"):
            step(path, [workspace / "missing"])
    assert not (workspace / "missing").exists()
