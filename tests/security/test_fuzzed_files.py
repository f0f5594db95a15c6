"""Files of the daemon's own, and its configuration, spoilt: refused with one line, dropped or rebuilt.

A fault while one of them is read would end the daemon, at each of its starts. Seeds are fixed; what many more of them
found is fixed here by name.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from holdfast.checkpoints.sweeps.plan_format import Header, Item, StoredPlan, StoredPolicy, read_plan
from holdfast.checkpoints.sweeps.plan_store import Outcome, PlanStore
from holdfast.config import load, settings_of
from holdfast.digest import Fingerprint
from holdfast.errors import ConfigurationError, HoldfastError, PlanError, StoreUnsuitableError, TakeoverError
from holdfast.index import CachedName, Entry, EntryState, Index, WorkdirRecord
from holdfast.index.records import decoded_entry, decoded_name, decoded_workdir, encoded
from holdfast.remote.file_store import FileStore
from holdfast.session import Identity, SessionArea
from holdfast.store import StoreDirectory
from holdfast.store.quarantine import Quarantine
from holdfast.system.file_id import FileId
from tests.support.disks.spoiling import spoilt, spoilt_pages

SEEDS = 300
CONFIGURATION_PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
PIECES = (
    *(b"[", b"]", b"[[", b'"', b"'", b'"""', b"= ", b"\n", b"{", b"}", b".", b",", b"\xff", b"\0", b"\x1b[2J"),
    *(b"nan", b"-1", b"9" * 30, b"9" * 5000, b"1e999", b"true", b"null", b"\\ud800", b"1979-05-27", b"../.."),
    *(b"[" * 3000, b'"more":' + b"[" * 3000, b"a." * 2000 + b"b=1", b"[stores.x]\n"),
)


def each_seed(problem: type[HoldfastError], work: Callable[[Random], object]) -> int:
    """Do ``work`` with each seed; it may raise ``problem``, whose message is one line. Return how often it did not."""
    succeeded = 0
    for seed in range(SEEDS):
        try:
            work(Random(seed))
        except problem as raised:
            text = str(raised)
            assert text.isprintable(), f"seed {seed}: {text!r}"
            assert text.encode(), "it can be printed"
        else:
            succeeded += 1
    return succeeded


# --- configuration ----------------------------------------------------------------------------------------------------

EXAMPLES = [each.encode() for each in re.findall(r"```toml\n(.*?)```", CONFIGURATION_PAGE.read_text(), re.DOTALL)]
KEYS = re.findall(
    r"`((?:mount|store|cache|remote|names|workdirs|sweep|control|log)\.[a-z_.]+)`", CONFIGURATION_PAGE.read_text()
)
VALUES = (b"5", b"true", b"1 GiB", b"/a/b", b"0o750", b"a,b", b"s3://user:password@host/x")


@pytest.mark.promise("damaged-files")
def test_a_spoilt_configuration_is_an_error_of_one_line(tmp_path: Path) -> None:
    """A traceback at the start says nothing to the administrator, and escape sequences go to the terminal."""
    file = tmp_path / "holdfast.toml"

    def read(random: Random) -> None:
        file.write_bytes(spoilt(random, random.choice(EXAMPLES), PIECES))
        load(file, {}).rows()

    assert each_seed(ConfigurationError, read) > 0
    for text in (b"[mount]\nmountpoint = " + b"[" * 3000, b"[cache]\nmax_bytes = " + b"9" * 5000):
        file.write_bytes(text)
        with pytest.raises(ConfigurationError, match="is not valid TOML"):
            load(file, {})


def test_spoilt_options_and_variables_are_errors_of_one_line() -> None:
    """What no terminal can print would end the command with a traceback instead of an error."""

    def setting(random: Random) -> tuple[str, str]:
        key = random.choice(KEYS)
        if random.random() < 0.3:
            key = os.fsdecode(spoilt(random, key.encode(), PIECES))
        return key, os.fsdecode(spoilt(random, random.choice(VALUES), PIECES))

    def read_option(random: Random) -> None:
        key, value = setting(random)
        load(None, {}, settings_of([f"{key}={value}"])).rows()

    def read_variable(random: Random) -> None:
        key, value = setting(random)
        load(None, {f"HOLDFAST_{key.upper().replace('.', '__')}": value}).rows()

    assert each_seed(ConfigurationError, read_option) > 0
    assert each_seed(ConfigurationError, read_variable) > 0


# --- the store directory and the session ------------------------------------------------------------------------------


@pytest.mark.promise("damaged-files")
def test_a_spoilt_format_file_is_an_error_of_one_line(workspace: Path) -> None:
    """A store directory that is not recognised must not be taken for an empty one, nor for another version's."""
    directory = workspace / "store"
    StoreDirectory.open(directory).close()
    file = next(path for path in directory.iterdir() if path.name.endswith(".json"))
    content = file.read_bytes()

    def read(random: Random) -> None:
        file.write_bytes(spoilt(random, content, PIECES))
        StoreDirectory.open(directory).close()

    each_seed(StoreUnsuitableError, read)


def test_a_spoilt_reason_keeps_no_file_from_quarantine(tmp_path: Path) -> None:
    """The list of what is in quarantine, and its expiry, would fail for all files because of one."""
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        (tmp_path / "1-1").write_bytes(b"spoilt")
        for seed in range(SEEDS):
            (tmp_path / "1-1.json").write_bytes(spoilt(Random(seed), b'{"reason": "x", "path": "a"}', PIECES))
            assert [found.name for found in Quarantine(directory).files()] == ["1-1"]
        (tmp_path / "1-1.json").write_bytes(b"[" * 100_000)
        assert Quarantine(directory).files()[0].reason == {}
    finally:
        os.close(directory)


@pytest.mark.promise("damaged-files")
def test_spoilt_tables_of_a_session_are_refused(tmp_path: Path) -> None:
    """A takeover that fails with anything but ``TakeoverError`` is tried for ever, and nobody is told what to do."""
    area = SessionArea(tmp_path / "session")
    area.begin()
    tables = area.open_tables()
    for number in range(40):
        tables.opens.count(tables.opens.add(number + 5, number, writes=True, exclusive=False, uid=number), 1, number)
        tables.unlinks.note(FileId(number + 1), is_last=True)
    tables.close()
    area.sign(Identity(mountpoint="/m", asked_for="/m", device=5, store="x"))
    content = {name: (area.directory / name).read_bytes() for name in ("opens", "removals", "mount")}

    def read(random: Random) -> None:
        for name, data in content.items():
            (area.directory / name).write_bytes(data)
        name = random.choice(list(content))
        data = spoilt(random, content[name], PIECES)
        (area.directory / name).write_bytes(data[: random.choice([len(data), random.randrange(80)])])
        area.read()
        opened = area.open_tables()
        try:
            assert list(opened.opens.records()) is not None
            assert opened.opens.numbers() is not None
            assert list(opened.unlinks.records()) is not None
        finally:
            opened.close()

    assert each_seed(TakeoverError, read) > 0
    area.release()


# --- plans ------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("damaged-files")
def test_spoilt_plans_are_refused_and_spoilt_outcomes_have_not_begun(tmp_path: Path) -> None:
    """One damaged file would keep all plans from being listed, and sweeps from being made."""
    items = tuple(
        Item(name=f"a/{number}", reason="unreferenced", about="x", size_bytes=1, mtime_ns=2, etag="e") for number in range(3)
    )
    header = Header(
        id="20260101-000000-abcdef",
        kind="sweep",
        zone="checkpoints",
        root="a",
        store="s3://bucket",
        made_ns=5,
        policy=StoredPolicy(1.0, 2.0, 3),
        count=len(items),
        size_bytes=3,
    )
    plan = StoredPlan(header, items)
    content = b"".join(plan.lines())
    each_seed(PlanError, lambda random: read_plan(io.BytesIO(spoilt(random, content, PIECES))))
    with pytest.raises(PlanError):
        read_plan(io.BytesIO(b'{"more":' + b"[" * 100_000))
    plans = PlanStore(tmp_path)
    plans.put(plan)
    for seed in range(SEEDS):
        (tmp_path / f"{header.id}.outcome").write_bytes(spoilt(Random(seed), b'{"state":"executing","removed":5}', PIECES))
        assert isinstance(plans.outcome(header.id), Outcome)
    (tmp_path / f"{header.id}.outcome").write_bytes(b'{"state":"\xff"}')
    assert plans.outcome(header.id) == Outcome()


# --- the index --------------------------------------------------------------------------------------------------------

NAME = CachedName(b"checkpoints/a", "etag", 5)
RECORDS: dict[Callable[[bytes], object], bytes] = {
    decoded_entry: encoded(Entry(EntryState.DIRTY, 5, 6, 7, b"d" * 16, [NAME])),
    decoded_workdir: encoded(WorkdirRecord("driver", "x", 1.0, 2.0)),
    decoded_name: encoded(NAME),
}
READ = """
import sys
from pathlib import Path
from holdfast.index import Index
index = Index.open(Path(sys.argv[1]), "store", b"boot")
list(index.entries.scan()), index.marks.deletions(), index.pins.all(), index.workdirs.after(b"", 100)
index.marks.whited_out_below(b"a"), index.marks.is_held(5)
index.marks.white_out(b"new"), index.marks.hold(2**60), index.entries.flush_uses()
"""


@pytest.mark.promise("index-damaged")
@pytest.mark.parametrize("decode", RECORDS)
def test_a_spoilt_record_is_no_record_or_another_one(decode: Callable[[bytes], object]) -> None:
    """One record would end the daemon at each of its starts."""
    for seed in range(SEEDS):
        decode(spoilt(Random(seed), RECORDS[decode], PIECES))


@pytest.mark.promise("index-damaged")
def test_a_deletion_whose_record_is_spoilt_is_left_out(tmp_path: Path) -> None:
    """The daemon did not start any more: all deletions that were not sent are read then."""
    index = Index.open(tmp_path, "store")
    index.marks.mark_deleted(NAME)
    index.marks._deletions.put(b"checkpoints/b", b"\x93\xc4\xff spoilt")
    assert index.marks.deletions() == [NAME]
    index.close()


@pytest.mark.promise("index-damaged")
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("in_order", [True, False], ids=["in-order", "killed"])
def test_an_index_with_spoilt_pages_is_replaced_by_the_next_start_at_the_latest(
    tmp_path: Path, seed: int, in_order: bool
) -> None:
    """LMDB ends the process that reads such a page, or has it read for ever: the next start has to find out before."""
    path = tmp_path / "index"
    index = Index.open(path, "store", b"boot")
    for number in range(300):
        name = CachedName(b"checkpoints/a/%d" % number, "etag", 5)
        index.entries.put(FileId(number + 10), Entry(EntryState(1 + number % 4), 5, 6, 7, b"d" * 16, [name]))
        index.marks.mark_deleted(name)
        index.marks.white_out(b"a/%d" % number)
        index.workdirs.put(b"work/driver_%d" % number, WorkdirRecord("driver", "x", 1.0, 2.0))
    for number in range(100):
        index.entries.discard(FileId(number + 10))
    if in_order:
        index.close()
    else:
        index._environment.close()
    file = path / "data.mdb"
    content = file.read_bytes()
    used_bytes = len(content.rstrip(b"\0")) // 4096 * 4096 + 4096
    file.write_bytes(spoilt_pages(Random(seed), content[:used_bytes]))
    ends: list[int] = []
    while not ends or (in_order and ends[-1] != 0 and len(ends) < 2):
        process = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, timeout=100, check=False)
        ends.append(process.returncode)
    assert ends[-1] == 0, process.stderr


# --- objects of a directory -------------------------------------------------------------------------------------------

METADATA = b'{"holdfast-digest": "xxh3-128:0123", "holdfast-chunks": "AAAA", "holdfast-node": "x"}'
STRANGE = (
    b"[]",
    b"5",
    b'"text"',
    b"null",
    b'{"holdfast-digest": 5}',
    b'{"holdfast-digest": null}',
    b"[" * 3000,
    b"9" * 3000,
)


@pytest.mark.promise("strange-attributes")
def test_metadata_that_somebody_has_written_is_read_as_none(workspace: Path) -> None:
    """Who may write a file of a file:// store would end every daemon that reads it, with an attribute of five bytes."""
    store = FileStore(workspace / "objects")
    file = workspace / "objects" / "planted"
    file.write_bytes(b"x" * 9)
    for written in (*STRANGE, *(spoilt(Random(seed), METADATA, PIECES)[:3000] for seed in range(SEEDS))):
        os.setxattr(file, "user.holdfast", written)
        info = store.head("planted")
        assert all(isinstance(value, str) for value in info.metadata.values())
        Fingerprint.from_metadata(info.metadata, 9)
