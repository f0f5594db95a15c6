"""Manifests that somebody made to do harm, or that a disk has spoilt: they are read or refused, in little memory.

They are read in a process whose address space is limited, as the daemon reads them. A crash, an error of any kind and a
manifest that takes too much memory end that process, and so the test.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.formats.spark.manifests import CHANGELOG, SNAPSHOT
from holdfast.checkpoints.manifests import ManifestKind, Trouble
from holdfast.checkpoints.reachability import Policy, sweep
from tests.support.checkpoints import hostile_zips, samples
from tests.support.checkpoints.hostile_zips import Entry, Zip
from tests.support.checkpoints.limited_reader import LimitedReader
from tests.support.checkpoints.roots import Root
from tests.support.flink import metadata as flink_metadata
from tests.support.spark import files as spark_files

pytestmark = pytest.mark.slow

LIMIT_BYTES = 96 * 2**20
READ = "read"
ANSWERS = {READ, *(trouble.value for trouble in Trouble)}
ZIP, METADATA = SNAPSHOT, FORMATS.manifests[0]
ENDINGS = {b".zip": ZIP, b".changelog": CHANGELOG, b"/_metadata": METADATA}
WRITTEN = [
    (kind, file.content)
    for name in samples.names()
    for path, file in sorted(samples.sample(name).files.items())
    for ending, kind in ENDINGS.items()
    if path.endswith(ending) and file.content is not None
]
"""What real engines wrote."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedReader]:
    with LimitedReader(tmp_path_factory.mktemp("store"), LIMIT_BYTES) as process:
        yield process


def test_what_real_engines_wrote_is_read_in_that_memory(reader: LimitedReader) -> None:
    outcomes = {reader.read(kind, content) for kind, content in WRITTEN}
    assert outcomes == {READ, Trouble.UNKNOWN_CODEC.value}, "changelogs in zstd can't be read"


# --- bombs ------------------------------------------------------------------------------------------------------------

BOMBS: dict[str, tuple[ManifestKind, Callable[[], bytes], Trouble | None]] = {
    "a zip of a gigabyte": (ZIP, lambda: Zip(bytes(2**30)).data(), Trouble.TOO_LARGE),
    "a zip that says it holds five bytes, and holds a gigabyte": (
        ZIP,
        lambda: Zip(bytes(2**30), (Entry(length_bytes=5),)).data(),
        Trouble.MALFORMED,
    ),
    "a million entries": (ZIP, lambda: Zip(entries=(Entry(b""),) * 1_000_000).data(), Trouble.TOO_LARGE),
    "a million entries of which only the other end speaks": (
        ZIP,
        lambda: hostile_zips.hidden_directory(1_000_000),
        Trouble.TOO_LARGE,
    ),
    "nineteen thousand entries that are one": (ZIP, lambda: Zip(entries=(Entry(),) * 19_000).data(), Trouble.MALFORMED),
    "a member past the end of the world": (ZIP, hostile_zips.beyond_all, Trouble.MALFORMED),
    "a directory before the beginning": (ZIP, hostile_zips.before_the_beginning, Trouble.MALFORMED),
    "as many names as there may be": (
        ZIP,
        lambda: hostile_zips.snapshot_of([f"{number:x}" for number in range(100_000)]),
        None,
    ),
    "more names than there may be": (ZIP, lambda: hostile_zips.snapshot_of(["a"] * 2_000_000), Trouble.TOO_LARGE),
    "a name that no file can have": (ZIP, lambda: hostile_zips.snapshot_of([r"a\u0000b"]), Trouble.MALFORMED),
    "a name that is too long for a file": (ZIP, lambda: hostile_zips.snapshot_of(["a" * 300]), Trouble.MALFORMED),
    "an array in an array in …": (ZIP, lambda: Zip(b'v1\n{"more":' + b"[" * 2**18).data(), Trouble.TOO_DEEP),
    "a match of half a gigabyte": (
        CHANGELOG,
        lambda: spark_files.lz4_block(b"\x1fa\x01\x00" + b"\xff" * 400_000 + b"\x00", 2**25, 0x2A) + spark_files.LZ4_END,
        None,
    ),
    "blocks without end": (CHANGELOG, lambda: spark_files.lz4_block(b"", 2**15, 0x25) * 10_000, Trouble.TRUNCATED),
    "a metadata of nothing but inline state": (
        METADATA,
        lambda: flink_metadata.metadata([])[:20] + bytes(500 * 2**20),
        Trouble.TRAILING,
    ),
    "JSON of half a gigabyte": (METADATA, lambda: b'{"holdfast":1,"files":[' + b" " * 2**29, Trouble.TOO_LARGE),
}


@pytest.mark.promise("manifests")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_or_read_in_little_memory(reader: LimitedReader, name: str) -> None:
    kind, data, expected = BOMBS[name]
    assert reader.read(kind, data()) == (READ if expected is None else expected.value)


# --- fuzz -------------------------------------------------------------------------------------------------------------

offsets = st.none() | st.integers(0, 200) | st.sampled_from([2**16 - 1, 2**31 - 1, 2**32 - 1])
entries = st.builds(
    Entry,
    name=st.sampled_from([b"metadata", b"", b"../metadata", b"\xff\xfe"]),
    method=st.sampled_from([0, 8, 9, 12, 14, 99]),
    flags=st.sampled_from([0, 1, 8, 0x20, 0x40, 0x800]),
    offset=offsets,
    stored_bytes=offsets,
    length_bytes=offsets,
    crc=st.none() | st.just(0),
    extra=st.binary(max_size=28)
    | st.integers(0, 2**64 - 1).map(lambda offset: hostile_zips.offset_of_64_bits(offset).extra),
)
zips = st.builds(
    Zip,
    content=st.sampled_from([b"v1\n{}", b'v1\n{"sstFiles":[]}', bytes(100_000)]),
    entries=st.lists(entries, max_size=4).map(tuple),
    directory_bytes=offsets,
    directory_offset=offsets,
    count=offsets,
    comment=st.binary(max_size=30) | st.just(bytes(0xFFFF)),
    is_64=st.booleans(),
)


@given(hostile=zips)
@example(hostile=Zip(entries=(hostile_zips.offset_of_64_bits(2**63),)))
@settings(max_examples=300, deadline=None)
def test_zips_that_contradict_themselves_are_refused_or_read(reader: LimitedReader, hostile: Zip) -> None:
    assert reader.read(ZIP, hostile.data()) in ANSWERS


@given(st.sampled_from(WRITTEN), st.data())
@settings(max_examples=300, deadline=None)
def test_spoilt_manifests_are_refused_or_read(
    reader: LimitedReader, written: tuple[ManifestKind, bytes], data: st.DataObject
) -> None:
    kind, content = written[0], bytearray(written[1])
    for _ in range(data.draw(st.integers(0, 6), "flips")):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    end = data.draw(st.integers(0, len(content)) | st.just(len(content)), "end")
    as_kind = data.draw(st.sampled_from([kind, kind, kind, ZIP, CHANGELOG, METADATA]), "read as")
    assert reader.read(as_kind, bytes(content[:end])) in ANSWERS


def test_no_beginning_of_a_snapshot_passes_for_a_whole_one(reader: LimitedReader) -> None:
    content = next(content for kind, content in WRITTEN if kind is ZIP)
    for end in range(0, len(content), max(1, len(content) // 200)):
        assert reader.read(ZIP, content[:end]) != READ


def test_methods_that_zipfile_knows_and_spark_does_not_use_are_refused(reader: LimitedReader) -> None:
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        content = spark_files.zipped({"metadata": b" " * 2**24}, method)
        assert reader.read(ZIP, content) == Trouble.UNKNOWN_CODEC.value


# --- sweeps over them -------------------------------------------------------------------------------------------------

COMMITS = "spark-rocksdb-2-changelog"
"""A sample whose commits have ids."""
POLICY = Policy(grace_ns=0, abandoned_ns=0, min_batches_to_retain=2)


@pytest.mark.promise("manifests")
@given(st.sampled_from(samples.names()), st.data())
@settings(max_examples=150, deadline=None)
def test_a_manifest_that_can_not_be_read_keeps_what_it_may_name_and_the_plan_says_so(name: str, data: st.DataObject) -> None:
    root = Root.of_sample(samples.sample(name))
    whole = root.sweep(POLICY)
    manifests = sorted(asked_for(root))
    if not manifests:
        return
    manifest = data.draw(st.sampled_from(manifests))
    content = root.files[manifest][0]
    spoilt = data.draw(st.just(content[: data.draw(st.integers(0, len(content) - 1))]) | st.binary(max_size=50))
    root.files[manifest] = (spoilt, root.files[manifest][1])
    plan = root.sweep(POLICY)
    went, would_go = ({entry.name for entry in each.entries} for each in (plan, whole))
    assert went <= would_go
    if not any(kept.scope == manifest for kept in plan.kept):
        assert went == would_go, "what was read to its end is judged as before"


@pytest.mark.parametrize("left", [b"v2", b"v2\n"])
def test_a_commit_that_was_cut_off_after_its_version_costs_no_state(left: bytes) -> None:
    commits = {name for name in asked_for(Root.of_sample(samples.sample(COMMITS))) if name.startswith(b"commits/")}
    assert commits
    for commit in commits:
        root = Root.of_sample(samples.sample(COMMITS))
        whole = {entry.name for entry in root.sweep(POLICY).entries}
        root.files[commit] = (left, root.files[commit][1])
        plan = root.sweep(POLICY)
        assert {entry.name for entry in plan.entries} <= whole
        assert commit in [kept.scope for kept in plan.kept]


def asked_for(root: Root) -> set[bytes]:
    """Return the manifests that a sweep reads."""
    found: set[bytes] = set()
    examination = sweep(root.listing(), POLICY, root.now_ns)
    while examination.wanted:
        found |= {wanted.name for wanted in examination.wanted}
        examination.supply(root.answers(examination.wanted))
    return found
