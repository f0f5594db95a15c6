"""The databases of the index: entries and what is counted of them, marks, working directories."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.index import CachedName, Entry, EntryState, Index, NameMarks, WorkdirRecord, entries, pages
from holdfast.index.pages import resident_file_bytes
from holdfast.system.file_id import FileId
from tests.support.processes.descriptors import no_free_descriptors

_MANY = 10_000
LONG = b"checkpoints/" + b"/".join([b"x" * 255] * 4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def marks(index: Index) -> NameMarks:
    return index.marks


def entry(size_bytes: int = 0, state: EntryState = EntryState.CLEAN, used_ns: int = 0) -> Entry:
    return Entry(state, size_bytes, 0, 0, names=[CachedName(b"a", "e")], used_ns=used_ns)


def test_a_scan_gives_back_the_pages_that_it_has_seen(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    for inode in range(_MANY):
        index.entries.put(FileId(inode), Entry(EntryState.CLEAN, inode, 0, 0, names=[CachedName(LONG, "e")]))
    monkeypatch.setattr(entries, "_PAGE", 1000)

    def mapped_after_a_scan(most_mapped_bytes: int) -> int:
        monkeypatch.setattr(pages, "MOST_MAPPED_BYTES", most_mapped_bytes)
        assert sum(found.size_bytes for _, found in index.entries.scan()) == sum(range(_MANY))
        return resident_file_bytes()

    given_back = mapped_after_a_scan(0)
    assert mapped_after_a_scan(1 << 40) > given_back + (2 << 20)


def test_an_entry_that_was_absent_is_found_once_it_is_there(index: Index) -> None:
    for _ in range(2):
        assert index.entries.get(FileId(7)) is None
        index.entries.put(FileId(7), entry(5))
        assert index.entries.get(FileId(7)) == entry(5)
        index.entries.discard(FileId(7))


def test_a_thread_that_finds_no_entry_remembers_nothing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[FileId] = []
    monkeypatch.setattr(entries.Entries, "_note_absent", lambda _, inode: noted.append(inode))
    with ThreadPoolExecutor() as threads:
        assert threads.submit(index.entries.get, FileId(7)).result() is None
    assert index.entries.get(FileId(8)) is None
    assert noted == [FileId(8)]


def test_many_absent_entries_take_no_memory(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_MOST_ABSENT", 3)
    assert [index.entries.get(FileId(inode)) for inode in range(10)] == [None] * 10
    assert len(index.entries._absent) <= 3


def test_changes_give_back_the_pages_that_they_have_mapped(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    for inode in range(_MANY):
        index.entries.put(FileId(inode), Entry(EntryState.CLEAN, inode, 0, 0, names=[CachedName(LONG, "e")]))

    def mapped_after_changes(most_mapped_bytes: int, inodes: range) -> int:
        monkeypatch.setattr(pages, "MOST_MAPPED_BYTES", most_mapped_bytes)
        for inode in inodes:
            index.entries.discard(FileId(inode))
        return resident_file_bytes()

    kept = mapped_after_changes(1 << 40, range(_MANY // 2))
    assert mapped_after_changes(0, range(_MANY // 2, _MANY)) < kept - (2 << 20)


def test_pages_stay_while_no_descriptor_is_free(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_MAPPED_BYTES", -1)
    index.entries.put(FileId(7), entry(1))
    with no_free_descriptors(os.getpid()):
        with pytest.raises(OSError, match="Too many open files"):
            resident_file_bytes()
        index.release_pages()
    assert index.entries.get(FileId(7)) == entry(1)


def spoil(index: Index, inode: int) -> None:
    """Write something that is no record in the place of an entry."""
    environment = index._environment
    with environment.begin(db=environment.open_db(b"entries"), write=True) as transaction:
        transaction.put(inode.to_bytes(8, "big"), b"\xff\xff")


# --- entries ----------------------------------------------------------------------------------------------------------


def test_an_entry_is_what_was_last_put(index: Index) -> None:
    assert index.entries.get(FileId(7)) is None
    index.entries.put(FileId(7), entry(1))
    index.entries.put(FileId(7), entry(2))
    assert index.entries.get(FileId(7)) == entry(2)
    index.entries.discard(FileId(7))
    index.entries.discard(FileId(7))
    assert index.entries.get(FileId(7)) is None
    assert index.entries.count() == 0


def test_entries_come_in_the_order_of_inode_numbers(index: Index) -> None:
    inodes = [2**63 + 1, 5, 256, 255, 2**32]
    for inode in inodes:
        index.entries.put(FileId(inode), entry(inode % 100))
    assert [inode for inode, _ in index.entries.scan()] == sorted(inodes)
    assert index.entries.count() == 5


def test_a_scan_sees_each_entry_as_it_was_or_as_it_is(index: Index) -> None:
    index.entries.put(FileId(1), entry(1))
    index.entries.put(FileId(2), entry(2))
    scan = index.entries.scan()
    assert next(scan)[0] == 1
    index.entries.discard(FileId(2))
    index.entries.put(FileId(3), entry(3))
    assert [inode for inode, _ in scan] == [2, 3]


def test_corrupt_record_counts_as_none(index: Index) -> None:
    index.entries.put(FileId(1), entry(10))
    spoil(index, 2)
    assert index.entries.get(FileId(2)) is None
    assert [inode for inode, _ in index.entries.scan()] == [1]
    index.entries.used(FileId(2), 5)
    index.entries.flush_uses()
    index.entries.put(FileId(2), entry(5))
    assert index.entries.cached_bytes == 15
    spoil(index, 2)
    index.entries.discard(FileId(2))
    assert index.entries.get(FileId(2)) is None


def test_uses_are_written_when_they_are_flushed(index: Index) -> None:
    index.entries.put(FileId(1), entry(used_ns=10))
    index.entries.put(FileId(2), entry(used_ns=20))
    index.entries.used(FileId(1), 30)
    index.entries.used(FileId(1), 40)
    index.entries.used(FileId(99), 50)
    stored = index.entries.get(FileId(1))
    assert stored is not None
    assert stored.used_ns == 10
    index.entries.flush_uses()
    assert {inode: found.used_ns for inode, found in index.entries.scan()} == {1: 40, 2: 20}


def test_the_use_of_a_file_that_went_is_not_its_successors(index: Index) -> None:
    index.entries.put(FileId(1), entry())
    index.entries.used(FileId(1), 40)
    index.entries.discard(FileId(1))
    index.entries.put(FileId(1), entry())
    index.entries.flush_uses()
    assert index.entries.get(FileId(1)) == entry()


def test_uses_survive_an_orderly_end(path: Path) -> None:
    index = Index.open(path, "store")
    index.entries.put(FileId(1), entry())
    index.entries.used(FileId(1), 40)
    index.close()
    index = Index.open(path, "store")
    assert index.entries.get(FileId(1)) == entry(used_ns=40)
    index.close()


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "discard", "used", "flush", "spoil"]),
        st.integers(1, 4),
        st.integers(0, 1000),
        st.sampled_from(EntryState),
    ),
    max_size=30,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_cached_bytes_are_the_sum_over_all_copies(index: Index, steps: list[tuple[str, int, int, EntryState]]) -> None:
    entries = index.entries
    for inode in range(1, 5):
        entries.discard(FileId(inode))
    assert entries.cached_bytes == 0
    for kind, inode, size_bytes, state in steps:
        if kind == "put":
            entries.put(FileId(inode), entry(size_bytes, state))
        elif kind == "discard":
            entries.discard(FileId(inode))
        elif kind == "used":
            entries.used(FileId(inode), size_bytes)
        elif kind == "flush":
            entries.flush_uses()
        copies = [found for _, found in entries.scan() if found.state is not EntryState.LOCAL]
        assert entries.cached_bytes == sum(found.size_bytes for found in copies)


def test_cached_bytes_are_counted_anew_at_each_start(path: Path) -> None:
    index = Index.open(path, "store")
    for inode, state in enumerate(EntryState, 1):
        index.entries.put(FileId(inode), entry(10**inode, state))
    expected = index.entries.cached_bytes
    assert expected == 10 + 100 + 1000 + 100_000
    index.close()
    index = Index.open(path, "store")
    assert index.entries.cached_bytes == expected
    index.close()


# --- marks ------------------------------------------------------------------------------------------------------------


DIGEST = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("left", "found", "was_open"),
    [
        (Entry(EntryState.OPEN, 1, 2, 3, DIGEST), Entry(EntryState.OPEN, 1, 2, 3, DIGEST), True),
        (Entry(EntryState.DIRTY, 1, 2, 3, DIGEST), Entry(EntryState.OPEN, 1, 2, 3, DIGEST), True),  # of version 0.1.0
        (Entry(EntryState.DIRTY, 1, 2, 3), Entry(EntryState.DIRTY, 1, 2, 3), False),
        (Entry(EntryState.UPLOADING, 1, 2, 3), Entry(EntryState.DIRTY, 1, 2, 3), False),
        (Entry(EntryState.UPLOADING, 1, 2, 3, DIGEST), Entry(EntryState.DIRTY, 1, 2, 3), False),  # of version 0.1.0
        (Entry(EntryState.CLEAN, 1, 2, 3, DIGEST), Entry(EntryState.CLEAN, 1, 2, 3, DIGEST), False),
    ],
)
def test_what_was_open_or_under_way_at_the_end_of_a_run_is_known_in_the_next(
    path: Path, left: Entry, found: Entry, was_open: bool
) -> None:
    with closing(Index.open(path, "store", b"boot")) as index:
        index.entries.put(FileId(7), left)
    with closing(Index.open(path, "store", b"boot")) as index:
        assert index.entries.get(FileId(7)) == found
        assert index.entries.were_open == ([7] if was_open else [])


def test_directories_are_held_by_inode_number(marks: NameMarks) -> None:
    marks.hold(FileId(5))
    marks.hold(FileId(5))
    assert marks.is_held(FileId(5))
    assert not marks.is_held(FileId(6))
    marks.let_go(FileId(5))
    marks.let_go(FileId(6))
    assert not marks.is_held(FileId(5))


def test_whiteouts_hide_exactly_one_path(marks: NameMarks) -> None:
    marks.white_out(b"work/tm_1/localState/a")
    assert marks.is_whited_out(b"work/tm_1/localState/a")
    assert not marks.is_whited_out(b"work/tm_1/localState/a/b")
    assert not marks.is_whited_out(b"work/tm_1/localState")
    marks.uncover(b"work/tm_1/localState/a")
    marks.uncover(b"never covered")
    assert not marks.is_whited_out(b"work/tm_1/localState/a")


@pytest.mark.parametrize("directory", [b"checkpoints/q", LONG], ids=["short", "long"])
def test_whiteouts_below_a_directory_are_told(marks: NameMarks, directory: bytes) -> None:
    below = [directory + b"/a", directory + b"/a/b", directory + b"/" + b"c" * 200]
    for path in [*below, directory, directory + b"2/a", b"checkpoints/p/a", b"work/tm_1/localState/a"]:
        marks.white_out(path)
    assert sorted(marks.whited_out_below(directory)) == sorted(below)
    assert marks.whited_out_below(directory + b"/a/b") == []


def test_whiteouts_below_a_directory_go_together(marks: NameMarks) -> None:
    below = [b"work/tm_1/a", b"work/tm_1/b/c", b"work/tm_1/b/d", b"work/tm_1/\xff"]
    beside = [b"work/tm_1", b"work/tm_10/a", b"work/tm_1.x", b"work/tm_0/z", b"work/tm_2"]
    for path in below + beside:
        marks.white_out(path)
    marks.uncover_below(b"work/tm_1")
    assert [path for path in below + beside if marks.is_whited_out(path)] == beside


def test_whiteouts_below_a_directory_are_told_and_go_in_parts(marks: NameMarks) -> None:
    below = [b"work/tm_1/%d" % number for number in range(10)]
    for path in [*below, b"work/tm_10/a"]:
        marks.white_out(path)
    first = marks.whited_out_below(b"work/tm_1", most=4)
    assert first + marks.whited_out_below(b"work/tm_1", after=first[-1]) == below
    assert not marks.uncover_below(b"work/tm_1", most=6)
    assert marks.whited_out_below(b"work/tm_1") == below[6:]
    assert marks.uncover_below(b"work/tm_1", most=6)
    assert marks.whited_out_below(b"work/tm_1") == []
    assert marks.is_whited_out(b"work/tm_10/a")


@pytest.mark.parametrize("length", [400, 463, 464, 465, 479, 480, 481, 511, 512, 1000, 4000])
def test_whiteouts_below_a_long_path_go_together(marks: NameMarks, length: int) -> None:
    directory = (b"d/" * 2000)[: length - 1] + b"e"
    below = [directory + b"/a", directory + b"/a/" + b"b" * 255, directory + b"/" + b"c" * 255]
    beside = [directory, directory + b"x", directory + b"x/a", directory[:-1] + b"f/a"]
    for path in below + beside:
        marks.white_out(path)
    marks.uncover_below(directory)
    assert [path for path in below + beside if marks.is_whited_out(path)] == beside


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sets(st.lists(st.sampled_from([b"a", b"b", b"x" * 255]), min_size=1, max_size=5).map(b"/".join), max_size=12),
    st.data(),
)
def test_uncovering_below_is_what_it_says(marks: NameMarks, paths: set[bytes], data: st.DataObject) -> None:
    for path in paths:
        marks.white_out(path)
    directory = data.draw(st.sampled_from(sorted(paths) or [b"a"]))
    marks.uncover_below(directory)
    assert {path for path in paths if marks.is_whited_out(path)} == {
        path for path in paths if not path.startswith(directory + b"/")
    }
    for path in paths:
        marks.uncover(path)


def test_paths_longer_than_keys_are_told_apart(marks: NameMarks) -> None:
    others = [LONG[:-1] + b"y", LONG + b"z", LONG[:464], LONG[:480], LONG[:481]]
    marks.white_out(LONG)
    marks.mark_deleted(CachedName(LONG, "1"))
    assert marks.is_whited_out(LONG)
    assert not any(marks.is_whited_out(path) for path in others)
    for path in others:
        marks.mark_deleted(CachedName(path, "2"))
    assert sorted(version.path for version in marks.deletions()) == sorted([LONG, *others])
    marks.clear_deleted(LONG)
    assert sorted(version.path for version in marks.deletions()) == sorted(others)


def test_deletions_are_there_after_a_crash(path: Path) -> None:
    index = Index.open(path, "store")
    kept = CachedName(b"checkpoints/b", "1", 7)
    index.marks.mark_deleted(CachedName(b"checkpoints/a", "1", 7))
    index.marks.mark_deleted(kept)
    index.marks.clear_deleted(b"checkpoints/a")
    index._environment.close()
    index = Index.open(path, "store")
    assert index.marks.deletions() == [kept]
    index.close()


# --- working directories ----------------------------------------------------------------------------------------------


def test_working_directories_come_in_the_order_of_their_paths(index: Index) -> None:
    records = {
        path: WorkdirRecord("worker", path.decode()[-1], 1.0, 2.0) for path in (b"work/w_2", b"spark/w_1", b"work/w_1")
    }
    for path, record in records.items():
        index.workdirs.put(path, record)
    assert index.workdirs.after(b"", 10) == sorted(records.items())
    assert index.workdirs.after(b"", 2) == sorted(records.items())[:2]
    assert index.workdirs.after(b"work/w_1", 2) == sorted(records.items())[2:]
    assert index.workdirs.after(b"work/w_2", 2) == []
    assert index.workdirs.get(b"work/w_2") == records[b"work/w_2"]
    index.workdirs.discard(b"work/w_2")
    index.workdirs.discard(b"work/w_2")
    assert index.workdirs.get(b"work/w_2") is None


def test_the_longest_path_of_a_working_directory_is_a_key(index: Index) -> None:
    path = b"b" * 255 + b"/" + b"w_" + b"i" * 253
    index.workdirs.put(path, WorkdirRecord("w", "i" * 253, 1.0, 2.0))
    assert [found for found, _ in index.workdirs.after(b"", 10)] == [path]


def test_a_corrupt_record_of_a_working_directory_counts_as_none(index: Index) -> None:
    environment = index._environment
    with environment.begin(db=environment.open_db(b"workdirs"), write=True) as transaction:
        transaction.put(b"work/w_1", b"\x92\xa1\xff")
    assert index.workdirs.get(b"work/w_1") is None
    assert index.workdirs.after(b"", 10) == []
