"""The records of the index: their form on the disk is pinned here, and so are the states an entry may pass through."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.index import CachedName, Entry, EntryState, WorkdirRecord
from holdfast.index.records import TRANSITIONS, decoded_entry, decoded_workdir, encoded

NAME = CachedName(b"checkpoints/a", "etag", 1_700_000_000_000_000_003)
ENTRY = Entry(
    EntryState.CLEAN,
    5,
    1_700_000_000_000_000_001,
    1_700_000_000_000_000_002,
    bytes(range(16)),
    [NAME],
    verified_run=7,
    used_ns=1_700_000_000_000_000_004,
    path=b"checkpoints/a",
)
ENTRY_BYTES = bytes.fromhex(
    "9b"  # eleven fields
    "01"  # CLEAN
    "05"  # size
    "cf17979cfe362a0001"  # mtime
    "cf17979cfe362a0002"  # ctime
    "c410000102030405060708090a0b0c0d0e0f"  # digest
    "91" + "93" + "c40d636865636b706f696e74732f61" + "a465746167" + "cf17979cfe362a0003"  # one name: path, etag, modified
    "07"  # run
    "cf17979cfe362a0004"  # last use
    "c40d636865636b706f696e74732f61"  # path
    "c2"  # not on probation
    "c2"  # its mtime is not set by a user
)
WORKDIR = WorkdirRecord("worker", "1", 1.5, 2.5, 3.5, pid=42, pid_started_ticks=77, command="java", acquisitions=3)
WORKDIR_BYTES = bytes.fromhex(
    "99" + "a6776f726b6572" + "a131" + "cb3ff8000000000000" + "cb4004000000000000" + "cb400c000000000000"
    "2a" + "4d" + "a46a617661" + "03"
)

entries = st.builds(
    Entry,
    st.sampled_from(EntryState),
    st.integers(0, 2**62),
    st.integers(-(2**62), 2**62),
    st.integers(-(2**62), 2**62),
    st.binary(max_size=16),
    st.lists(st.builds(CachedName, st.binary(), st.text(), st.integers(0, 2**62))),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.binary(),
)


def test_an_entry_of_an_older_version_is_not_on_probation_and_has_no_time_set_by_a_user() -> None:
    assert decoded_entry(b"\x9a" + ENTRY_BYTES[1:-1]) == ENTRY
    assert decoded_entry(b"\x99" + ENTRY_BYTES[1:-2]) == ENTRY


def test_the_bytes_of_an_entry_never_change() -> None:
    assert encoded(ENTRY) == ENTRY_BYTES
    assert decoded_entry(ENTRY_BYTES) == ENTRY
    assert encoded(Entry(EntryState.DIRTY, 0, 0, 0)).hex() == "9b02000000c400900000c400c2c2"


def test_the_bytes_of_a_working_directory_never_change() -> None:
    assert encoded(WORKDIR) == WORKDIR_BYTES
    assert decoded_workdir(WORKDIR_BYTES) == WORKDIR


def test_the_numbers_of_the_states_never_change() -> None:
    assert {state.name: state.value for state in EntryState} == {
        "CLEAN": 1,
        "DIRTY": 2,
        "UPLOADING": 3,
        "LOCAL": 4,
        "OPEN": 5,
    }


@given(entries)
def test_an_entry_is_read_back_as_it_was_written(entry: Entry) -> None:
    assert decoded_entry(encoded(entry)) == entry


def test_a_record_of_an_older_version_gets_the_defaults_of_what_it_lacks() -> None:
    assert decoded_entry(msgspec.msgpack.encode([4, 5, 6, 7])) == Entry(EntryState.LOCAL, 5, 6, 7)
    assert decoded_workdir(msgspec.msgpack.encode(["worker", "1", 1.0, 2.0])) == WorkdirRecord("worker", "1", 1.0, 2.0)


def test_a_record_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    assert decoded_entry(msgspec.msgpack.encode([*msgspec.msgpack.decode(ENTRY_BYTES), "new"])) == ENTRY


@dataclass(frozen=True)
class Damage:
    at: int
    to: int
    end: int


damages = st.builds(Damage, st.integers(0, 200), st.integers(0, 255), st.integers(0, 200))


@given(st.sampled_from([ENTRY_BYTES, WORKDIR_BYTES]), st.lists(damages, min_size=1, max_size=4))
def test_a_damaged_record_is_a_record_or_none(data: bytes, how: list[Damage]) -> None:
    damaged = bytearray(data)
    for damage in how:
        damaged[damage.at % len(data)] = damage.to
    damaged = damaged[: how[0].end]
    for read in (decoded_entry, decoded_workdir):
        found = read(bytes(damaged))
        assert found is None or isinstance(found, Entry | WorkdirRecord)


@given(st.binary())
def test_any_bytes_are_a_record_or_none(data: bytes) -> None:
    decoded_entry(data)
    decoded_workdir(data)


def test_a_text_that_is_not_utf8_makes_a_record_unreadable() -> None:
    assert decoded_entry(ENTRY_BYTES.replace(b"etag", b"\xff\xff\xff\xff")) is None
    assert decoded_workdir(WORKDIR_BYTES.replace(b"java", b"\xff\xff\xff\xff")) is None


def test_a_negative_size_makes_a_record_unreadable() -> None:
    assert decoded_entry(msgspec.msgpack.encode([1, -5, 0, 0])) is None


# --- states -----------------------------------------------------------------------------------------------------------

ALLOWED = {
    ("CLEAN", "CLEAN"),
    ("CLEAN", "DIRTY"),
    ("CLEAN", "OPEN"),
    ("DIRTY", "DIRTY"),
    ("DIRTY", "UPLOADING"),
    ("DIRTY", "LOCAL"),
    ("DIRTY", "CLEAN"),
    ("UPLOADING", "CLEAN"),
    ("UPLOADING", "DIRTY"),
    ("UPLOADING", "OPEN"),
    ("LOCAL", "LOCAL"),
    ("LOCAL", "DIRTY"),
    ("LOCAL", "OPEN"),
    ("OPEN", "OPEN"),
    ("OPEN", "DIRTY"),
    ("OPEN", "CLEAN"),
    ("OPEN", "LOCAL"),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(EntryState, EntryState)))
def test_an_entry_passes_through_the_states_of_the_table_only(old: EntryState, new: EntryState) -> None:
    entry = Entry(old, 0, 0, 0)
    if (old.name, new.name) in ALLOWED:
        entry.become(new)
        assert entry.state is new
    else:
        with pytest.raises(ValueError, match=f"an entry can't go from {old.name} to {new.name}"):
            entry.become(new)
        assert entry.state is old


@pytest.mark.parametrize(
    ("new", "digest"), [(EntryState.DIRTY, b""), (EntryState.OPEN, b"digest"), (EntryState.CLEAN, b"digest")]
)
def test_an_unsent_file_has_no_digest(new: EntryState, digest: bytes) -> None:
    entry = Entry(EntryState.CLEAN, 0, 0, 0, b"digest")
    entry.become(new)
    assert entry.digest == digest


def test_every_state_can_be_left_towards_the_disk_or_the_store() -> None:
    assert set(TRANSITIONS) == {None, *EntryState}
    assert EntryState.UPLOADING not in TRANSITIONS[None]


# --- names ------------------------------------------------------------------------------------------------------------


def test_an_entry_has_one_object_name_a_path() -> None:
    entry = Entry(EntryState.CLEAN, 0, 0, 0)
    assert entry.name_at(b"a") is None
    entry.set_name(CachedName(b"a", "1"))
    entry.set_name(CachedName(b"b", "1"))
    entry.set_name(CachedName(b"a", "2"))
    assert sorted(name.path for name in entry.names) == [b"a", b"b"]
    assert entry.name_at(b"a") == CachedName(b"a", "2")
    entry.drop_name(b"a")
    entry.drop_name(b"never there")
    assert entry.names == [CachedName(b"b", "1")]


def test_entries_do_not_share_their_names() -> None:
    one, other = Entry(EntryState.CLEAN, 0, 0, 0), Entry(EntryState.CLEAN, 0, 0, 0)
    one.names.append(NAME)
    assert other.names == []
