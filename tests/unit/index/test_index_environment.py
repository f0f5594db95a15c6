"""Opening the index: what is trusted, and what is begun anew with the old file kept aside."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import lmdb
import pytest

from holdfast.errors import IndexFullError, StoreUnsuitableError
from holdfast.index import Entry, EntryState, Index
from holdfast.index import doubt as doubt_module
from holdfast.index import environment as environment_module
from holdfast.index.doubt import Doubt, why_damaged
from holdfast.index.pages import RESERVE_BYTES
from holdfast.store import StoreDirectory
from holdfast.system.file_id import FileId
from tests.support.disks.mounts import mounted, mounted_image
from tests.support.disks.spoiling import replace_key
from tests.support.users.privileges import needs_root

ENTRY = Entry(EntryState.DIRTY, 5, 6, 7)
BOOT = b"this boot"
PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index"


def begin(path: Path, entries: int = 1) -> Index:
    """Make an index with something in it, and leave it open."""
    index = Index.open(path, "store", BOOT)
    for inode in range(1, entries + 1):
        index.entries.put(FileId(inode), ENTRY)
    return index


def crash(index: Index) -> None:
    """End without an orderly end, as the daemon's death does: what was written is the kernel's."""
    index._environment.close()


def reopen(path: Path, store_id: str = "store", boot_id: bytes = BOOT) -> Index:
    """Open again and close in order."""
    index = Index.open(path, store_id, boot_id)
    index.close()
    return index


def kept_entries(path: Path) -> int:
    """Return how many entries are in the index that was moved aside."""
    with lmdb.open(str(path / "data.mdb.old"), subdir=False, max_dbs=8, readonly=True, lock=False) as old:
        database = old.open_db(b"entries", create=False)
        with old.begin() as transaction:
            return int(transaction.stat(database)["entries"])


def test_a_new_index_is_not_renewed_and_leaves_nothing_aside(path: Path) -> None:
    index = begin(path)
    assert (index.run, index.renewed) == (1, None)
    index.close()
    assert sorted(os.listdir(path)) == ["data.mdb", "lock.mdb"]


def test_runs_are_counted(path: Path) -> None:
    begin(path).close()
    assert [reopen(path).run for _ in range(3)] == [2, 3, 4]


def test_an_orderly_end_is_trusted_after_any_boot(path: Path) -> None:
    begin(path).close()
    index = Index.open(path, "store", b"next boot")
    assert (index.run, index.renewed) == (2, None)
    assert index.entries.get(FileId(1)) == ENTRY
    index.close()


def test_the_daemons_death_loses_nothing(path: Path) -> None:
    crash(begin(path, entries=1000))
    index = Index.open(path, "store", BOOT)
    assert (index.run, index.renewed) == (2, None)
    assert index.entries.count() == 1000
    index.close()


def test_the_machines_boot_id_tells_boots_apart(path: Path) -> None:
    index = Index.open(path, "store")
    crash(index)
    assert Index.open(path, "store").renewed is None


def test_an_index_whose_disk_has_refused_bytes_is_not_trusted_whatever_later_syncs_say(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gain: the kernel tells of a loss once, so an orderly end followed, and the next start trusted what was on the disk."""
    index = begin(path)
    environment = index._environment
    answers = [lmdb.Error("Input/output error")]

    class Refused:
        """An environment whose first sync fails."""

        def sync(self, force: bool) -> None:
            if answers:
                raise answers.pop()
            environment.sync(force)

        def __getattr__(self, name: str) -> object:
            return getattr(environment, name)

    monkeypatch.setattr(index, "_environment", Refused())
    monkeypatch.setattr(environment_module, "was_refused", lambda fd: True)
    assert [(index.sync(), index.takes_writes) for _ in range(2)] == [(False, False), (False, True)]
    index.close()
    renewed = Index.open(path, "store", BOOT)
    assert renewed.renewed == "damaged: its disk has refused bytes that were written to it"
    renewed.close()
    assert reopen(path).renewed is None


def test_a_sync_that_fails_without_a_loss_leaves_the_index_trusted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = begin(path)
    monkeypatch.setattr(environment_module, "was_refused", lambda fd: False)
    with monkeypatch.context() as patch:
        patch.setattr(index, "_environment", SimpleNamespace(sync=_fail))
        assert not index.sync()
    assert index.sync()
    index.close()
    assert reopen(path, boot_id=b"next boot").renewed is None


def _fail(force: bool) -> NoReturn:
    raise lmdb.Error("No space left on device")


# --- what is not trusted ----------------------------------------------------------------------------------------------


def test_torn_after_a_boot_that_did_not_end_in_order(path: Path) -> None:
    crash(begin(path))
    renewed = reopen(path, boot_id=b"next boot")
    assert renewed.renewed == "torn: the machine went down while it was in use"
    assert renewed.run == 1
    assert kept_entries(path) == 1


def test_an_index_of_another_store(path: Path) -> None:
    begin(path).close()
    index = Index.open(path, "another", BOOT)
    assert index.renewed == "of another store"
    assert index.entries.get(FileId(1)) is None
    index.close()
    assert kept_entries(path) == 1


def test_an_index_of_another_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(path).close()
    monkeypatch.setattr(environment_module, "_SCHEMA", b"2")
    assert reopen(path).renewed == "of another schema (b'1')"
    assert reopen(path).renewed is None
    assert kept_entries(path) == 1


def test_an_environment_that_was_never_begun(path: Path) -> None:
    lmdb.open(str(path)).close()
    renewed = reopen(path).renewed
    assert renewed is not None
    assert renewed.startswith("damaged: ")


def garbage(file: Path) -> None:
    file.write_bytes(b"no lmdb file" * 5000)


def nothing(file: Path) -> None:
    os.truncate(file, 0)


def half(file: Path) -> None:
    """Cut into what is used: the end is kept ahead for changes."""
    with lmdb.open(str(file.parent), readonly=True, lock=False) as environment:
        os.truncate(file, environment.info()["last_pgno"] // 2 * PAGE)


def first_pages_only(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[2 * PAGE :] = bytes(len(data) - 2 * PAGE)
    file.write_bytes(data)


def zeros_inside(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[20 * PAGE : 60 * PAGE] = bytes(40 * PAGE)
    file.write_bytes(data)


def noise_inside(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[20 * PAGE : 60 * PAGE] = b"\xa5" * (40 * PAGE)
    file.write_bytes(data)


@pytest.mark.parametrize("damage", [garbage, nothing, half, first_pages_only, zeros_inside, noise_inside])
def test_a_damaged_file_is_kept_aside_and_the_index_begun_anew(path: Path, damage: Callable[[Path], None]) -> None:
    crash(begin(path, entries=5000))
    damage(path / "data.mdb")
    damaged = (path / "data.mdb").read_bytes()
    index = Index.open(path, "store", BOOT)
    assert index.renewed is not None
    assert index.renewed.startswith("damaged: ")
    assert index.entries.count() == 0
    index.entries.put(FileId(1), ENTRY)
    index.close()
    assert (path / "data.mdb.old").read_bytes()[: len(damaged)] == damaged
    assert reopen(path).renewed is None


@pytest.mark.parametrize("in_order", [True, False], ids=["in-order", "killed"])
@pytest.mark.parametrize("cut", [half, *(partial(os.truncate, length=length) for length in (0, 1, 4096, 5000, 8191))])
def test_a_cut_file_is_told_as_such(path: Path, cut: Callable[[Path], None], in_order: bool) -> None:
    """LMDB maps two pages before it looks at anything, and SIGBUS would end the daemon."""
    index = begin(path, entries=5000)
    if in_order:
        index.close()
    else:
        crash(index)
    cut(path / "data.mdb")
    assert reopen(path).renewed is not None
    assert reopen(path).renewed is None


def test_a_file_cut_in_order_is_told_as_cut(path: Path) -> None:
    begin(path, entries=5000).close()
    half(path / "data.mdb")
    assert reopen(path).renewed == "damaged: the file is cut short"


@pytest.mark.parametrize("in_order", [True, False], ids=["in-order", "killed"])
@pytest.mark.parametrize("content", [None, b"", b"\0" * 8192, b"\xa5" * 8192, b"short"])
def test_a_lock_that_is_gone_or_damaged_is_made_anew(path: Path, content: bytes | None, in_order: bool) -> None:
    index = begin(path, entries=100)
    if in_order:
        index.close()
    else:
        crash(index)
    (path / "lock.mdb").unlink()
    if content is not None:
        (path / "lock.mdb").write_bytes(content)
    index = Index.open(path, "store", BOOT)
    assert (index.renewed, index.entries.count()) == (None, 100)
    index.entries.put(FileId(1000), ENTRY)
    index.close()
    assert reopen(path).renewed is None


def out_of_order(file: Path) -> None:
    """Exchange the key of an entry for one that is less than all others."""
    replace_key(file, (4000).to_bytes(8, "big"), bytes(8))


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return what is verified from now on."""
    files: list[Path] = []

    def verify(file: Path) -> str | None:
        files.append(file)
        return why_damaged(file)

    monkeypatch.setattr(environment_module, "why_damaged", verify)
    return files


def test_an_index_is_verified_unless_it_was_closed_in_this_boot(path: Path, verified: list[Path]) -> None:
    """A million files take seconds, for which a mount waits."""
    begin(path, entries=1000).close()
    assert reopen(path).renewed is None
    assert verified == []
    assert reopen(path, boot_id=b"next boot").renewed is None
    assert verified == [path / "data.mdb"]
    reopen(path)
    verified.clear()
    crash(begin(path))
    assert (reopen(path).renewed, verified) == (None, [path / "data.mdb"])


@pytest.mark.promise("index-damaged")
def test_damage_that_reading_does_not_show_is_found_when_the_daemon_has_died(path: Path) -> None:
    """Gain: LMDB reads records that are out of order as if nothing were wrong, and finds some of them no more."""
    crash(begin(path, entries=5000))
    out_of_order(path / "data.mdb")
    renewed = reopen(path).renewed
    assert renewed is not None
    assert "keys out of order" in renewed


def test_records_out_of_order_after_an_orderly_end_do_not_keep_the_start_reading(path: Path) -> None:
    begin(path, entries=5000).close()
    out_of_order(path / "data.mdb")
    assert reopen(path).renewed == "damaged: its records are not in the order of their keys"
    assert sorted(os.listdir(path)) == ["data.mdb", "data.mdb.old", "lock.mdb", "lock.mdb.old"]


@pytest.mark.promise("index-damaged")
def test_a_daemon_that_lmdb_ends_leaves_a_note_for_the_next_start(path: Path) -> None:
    """After an orderly end nothing is verified, and so each start would end like this one."""
    begin(path, entries=5000).close()
    zeros_inside(path / "data.mdb")
    opening = (
        "import sys, pathlib, holdfast.index; holdfast.index.Index.open(pathlib.Path(sys.argv[1]), 'store', b'this boot')"
    )
    ended = subprocess.run([sys.executable, "-c", opening, str(path)], stderr=subprocess.DEVNULL, check=False)
    assert -ended.returncode in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
    renewed = reopen(path).renewed
    assert renewed is not None
    assert renewed.startswith("damaged: ")
    assert reopen(path).renewed is None


@pytest.mark.promise("index-damaged")
def test_what_proves_damage_while_the_daemon_runs_is_believed_at_the_next_start(path: Path) -> None:
    """Gain: the end was in order, and so each daemon ran into the same damage."""
    index = begin(path, entries=5000)
    out_of_order(path / "data.mdb")
    with pytest.raises(lmdb.CorruptedError):
        list(index.entries.scan())
    index.close()
    assert reopen(path).renewed == "damaged: its records are not in the order of their keys"


def test_an_index_that_there_is_no_memory_to_verify_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash(begin(path, entries=1000))

    def verify(_: Path) -> list[str]:
        raise MemoryError

    monkeypatch.setattr(doubt_module, "_verify", verify)
    with pytest.raises(StoreUnsuitableError, match="Cannot allocate memory"):
        reopen(path)
    monkeypatch.undo()
    index = Index.open(path, "store", BOOT)
    assert (index.renewed, index.entries.count()) == (None, 1000)
    index.close()


def test_an_intact_index_that_is_doubted_is_kept(path: Path, verified: list[Path]) -> None:
    begin(path, entries=1000).close()
    (path / "doubted").touch()
    index = Index.open(path, "store", BOOT)
    assert (index.renewed, index.entries.count(), len(verified)) == (None, 1000, 1)
    assert not (path / "doubted").exists()
    index.close()


def test_a_directory_in_the_place_of_the_note_has_each_start_verify(path: Path, verified: list[Path]) -> None:
    begin(path, entries=1000).close()
    (path / "doubted").mkdir()
    assert [reopen(path).renewed for _ in range(2)] == [None, None]
    assert len(verified) == 2


def test_where_the_note_can_not_be_written_the_index_is_verified(
    path: Path, verified: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(path).close()
    monkeypatch.setattr(Doubt, "note", lambda _: False)
    assert reopen(path).renewed is None
    assert len(verified) == 1


def test_a_database_that_has_lost_its_name_is_damage(path: Path) -> None:
    """One bit, and a new and empty one was made in its place, without a look at any file."""
    begin(path, entries=1000).close()
    replace_key(path / "data.mdb", b"entries", b"dntries")
    assert reopen(path).renewed == "damaged: a database has another name"


def test_an_index_of_an_earlier_version_is_kept(path: Path) -> None:
    """Those had databases that there are no more, and lacked others."""
    begin(path).close()
    with lmdb.open(str(path), max_dbs=8) as environment:
        environment.open_db(b"deletions")
        with environment.begin(write=True) as transaction:
            transaction.drop(environment.open_db(b"versions-to-delete", txn=transaction))
    assert reopen(path).renewed is None


def test_the_last_index_that_was_moved_aside_is_the_one_that_is_kept(path: Path) -> None:
    begin(path, entries=1).close()
    index = Index.open(path, "second", BOOT)
    index.entries.put(FileId(1), ENTRY)
    index.entries.put(FileId(2), ENTRY)
    index.close()
    reopen(path, "third")
    assert kept_entries(path) == 2


# --- what a new index could not help ----------------------------------------------------------------------------------


def test_an_index_that_can_not_be_opened_is_not_thrown_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(path).close()

    def no_memory(*_: object, **__: object) -> lmdb.Environment:
        raise lmdb.MemoryError("mdb_env_open: Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(lmdb, "open", no_memory)
        with pytest.raises(StoreUnsuitableError, match="can't be opened: mdb_env_open: Cannot allocate memory"):
            Index.open(path, "store", BOOT)
    index = Index.open(path, "store", BOOT)
    assert index.renewed is None
    assert index.entries.get(FileId(1)) == ENTRY
    index.close()


def test_a_directory_in_the_place_of_the_file(path: Path) -> None:
    (path / "data.mdb").mkdir(parents=True)
    with pytest.raises(StoreUnsuitableError, match="Is a directory"):
        Index.open(path, "store", BOOT)


def test_sync_and_close_leave_everything_on_the_disk(path: Path) -> None:
    index = begin(path)
    index.sync()
    index.close()
    assert reopen(path, boot_id=b"next boot").renewed is None


# --- a full disk ------------------------------------------------------------------------------------------------------


def _write_on(file: FileIO) -> None:
    while True:
        file.write(bytes(4096))


def _fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space left"):
        _write_on(ballast)


@needs_root
def test_on_a_full_disk_what_is_not_trusted_makes_room_for_the_new_index(tmp_path: Path) -> None:
    """Gain: after a power cut while the disk was full, no daemon could start."""
    with mounted("tmpfs", tmp_path / "disk", "-o", "size=9m") as disk:
        path = disk / "index"
        begin(path).close()
        _fill(disk)
        index = Index.open(path, "another store", BOOT)
        assert index.renewed == "of another store"
        index.entries.put(FileId(1), ENTRY)
        index.close()
        assert sorted(os.listdir(path)) == ["data.mdb", "lock.mdb"]


@needs_root
def test_an_index_says_whether_its_disk_has_room_for_more(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "disk", "-o", "size=5m") as disk:
        index = Index.open(disk / "index", "store")
        _fill(disk)
        index.keep_reserve()
        assert index.has_room
        inode = 0
        while index.has_room:
            inode += 1
            index.entries.put(FileId(inode), Entry(EntryState.LOCAL, 1, 1, 1, path=bytes(400)))
            index.keep_reserve()
        assert inode > 1000, "as long as half of the reserve is there"
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        index.keep_reserve()
        assert index.has_room
        index.close()


@needs_root
def test_on_a_full_btrfs_too_deletions_are_recorded(workspace: Path) -> None:
    """btrfs writes elsewhere what is overwritten, so that room which is reserved in a file is no help."""
    with mounted_image("btrfs", workspace / "disk", 128 * 2**20) as disk:
        store = StoreDirectory.open(disk / "store")
        index = Index.open(store.index_path, store.store_id)
        for inode in range(1, 3000):
            index.entries.put(FileId(inode), ENTRY)
        assert index.sync()
        _fill(disk)
        for inode in range(1, 3000):
            index.entries.discard(FileId(inode))
        assert index.sync()
        index.close()
        store.close()


def test_room_is_kept_ahead_for_changes_on_a_full_disk(path: Path) -> None:
    index = Index.open(path, "store")

    def spare_bytes() -> int:
        environment = index._environment
        used_bytes = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
        return (path / "data.mdb").stat().st_size - used_bytes

    assert spare_bytes() >= RESERVE_BYTES // 2
    inode = 0
    while spare_bytes() >= RESERVE_BYTES // 2:
        inode += 1
        index.entries.put(FileId(inode), Entry(EntryState.LOCAL, 1, 1, 1, path=bytes(400)))
    index.keep_reserve()
    assert spare_bytes() >= RESERVE_BYTES // 2
    index.close()
    index = Index.open(path, "store")
    assert index.entries.count() == inode
    index.close()


def test_without_room_what_a_reader_notes_is_left_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_module, "_MAP_BYTES", 256 * 1024)
    index = Index.open(path, "store")
    wanted = Entry(EntryState.LOCAL, 1, 1, 1, path=bytes(400))
    last = fill(index, wanted)
    with pytest.raises(IndexFullError, match="the disk of the store is full"):
        index.entries.put(FileId(last), wanted)
    index.entries.put_if_room(FileId(last), wanted)
    assert index.entries.get(FileId(last)) is None
    for inode in range(1, last):
        index.entries.used(FileId(inode), 7)
    index.entries.flush_uses()
    assert index.entries.get(FileId(1)) == wanted
    index._environment.set_mapsize(2**20)
    index.entries.flush_uses()
    used = index.entries.get(FileId(1))
    assert used is not None
    assert used.used_ns == 7
    index.close()


def fill(index: Index, entry: Entry) -> int:
    """Put entries until there is no room; return the inode of the one that did not fit."""
    for inode in itertools.count(1):
        try:
            index.entries.put(FileId(inode), entry)
        except IndexFullError:
            return inode
    raise AssertionError
