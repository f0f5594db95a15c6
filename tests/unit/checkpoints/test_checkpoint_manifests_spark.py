"""Snapshots, changelogs and log entries of Spark are read as Spark wrote them, or not at all."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.formats.interface import FetchReferences
from holdfast.checkpoints.formats.own import OwnFile, OwnMetadata, own_metadata
from holdfast.checkpoints.formats.spark.batch_log import SparkCommit, SparkOffsets
from holdfast.checkpoints.formats.spark.changelog import LineageItem, SparkChangelog
from holdfast.checkpoints.formats.spark.history import moved_metadata
from holdfast.checkpoints.formats.spark.manifests import CHANGELOG, COMMIT, OFFSETS, SNAPSHOT
from holdfast.checkpoints.formats.spark.names import SparkKind, SparkName, parse_spark
from holdfast.checkpoints.formats.spark.snapshot import SparkSnapshot
from holdfast.checkpoints.manifests import Manifest, ManifestKind, Trouble, Unreadable
from holdfast.errors import PlanError
from holdfast.fs.file_io.file_ends import names_behind
from tests.support.checkpoints import samples
from tests.support.spark import files as spark_files

U = "0a1b2c3d-4e5f-6789-abcd-ef0123456789"
METADATA = FORMATS.manifests[0]
KINDS = {
    SparkKind.ZIP: SNAPSHOT,
    SparkKind.CHANGELOG: CHANGELOG,
    SparkKind.COMMIT: COMMIT,
    SparkKind.OFFSETS: OFFSETS,
}
LIMIT_BYTES = 4 * 2**20


def entries(name: str, kind: SparkKind) -> dict[int, list[SparkName]]:
    """The final files of a kind in a sample, by their numbers."""
    found: dict[int, list[SparkName]] = {}
    for path in sorted(samples.sample(name).files):
        entry = parse_spark(path)
        if isinstance(entry, SparkName) and entry.kind is kind and not entry.layers:
            assert entry.number is not None
            found.setdefault(entry.number, []).append(entry)
    return found


def read_sample(name: str, entry: SparkName) -> Manifest:
    sample = samples.sample(name)
    return KINDS[entry.kind].read(sample.open(entry.name), sample.files[entry.name].size_bytes)


def read(kind: ManifestKind, data: bytes) -> Manifest:
    return kind.read(io.BytesIO(data), len(data))


def trouble(kind: ManifestKind, data: bytes) -> Trouble:
    result = read(kind, data)
    assert isinstance(result, Unreadable), result
    return result.trouble


# --- what Spark wrote -------------------------------------------------------------------------------------------------

ROCKSDB = [name for name in samples.names() if name.startswith("spark-") and "hdfs" not in name]


@pytest.mark.parametrize("name", ROCKSDB)
def test_each_snapshot_names_files_that_are_there(name: str) -> None:
    files = samples.sample(name).files
    snapshots = [entry for group in entries(name, SparkKind.ZIP).values() for entry in group]
    assert snapshots
    for entry in snapshots:
        snapshot = read_sample(name, entry)
        assert isinstance(snapshot, SparkSnapshot), (entry, snapshot)
        assert snapshot.files
        directory = entry.name.rpartition(b"/")[0]
        for file in snapshot.files:
            assert files[directory + b"/" + file.name].size_bytes == file.size_bytes


@pytest.mark.parametrize("name", ["spark-rocksdb-2-changelog", "spark-join-2"])
def test_lineages_lead_from_a_snapshot_to_the_version_before(name: str) -> None:
    longest = 0
    for number, group in entries(name, SparkKind.CHANGELOG).items():
        for entry in group:
            changelog = read_sample(name, entry)
            assert isinstance(changelog, SparkChangelog), changelog
            assert changelog.version == 3
            assert changelog.lineage is not None
            versions = [item.version for item in changelog.lineage]
            assert versions == list(range(number - len(versions), number))
            longest = max(longest, len(versions))
    assert longest >= 2


def test_lineages_and_commits_agree_on_the_attempts_that_count() -> None:
    name = "spark-rocksdb-2-changelog"
    true_ids: dict[int, bytes] = {}
    for number, (entry,) in entries(name, SparkKind.COMMIT).items():
        commit = read_sample(name, entry)
        assert isinstance(commit, SparkCommit)
        assert commit.unique_ids is not None
        (true_ids[number + 1],) = commit.unique_ids[0, 0]
    changelogs = entries(name, SparkKind.CHANGELOG)
    assert any(len(group) > 1 for group in changelogs.values()), "the sample has lost attempts"
    newest = max(true_ids)
    (entry,) = (each for each in changelogs[newest] if each.unique_id == true_ids[newest])
    changelog = read_sample(name, entry)
    assert isinstance(changelog, SparkChangelog)
    for item in changelog.lineage or ():
        assert true_ids.get(item.version, item.unique_id) == item.unique_id


def test_a_commit_of_a_join_has_an_id_for_each_store() -> None:
    commits = entries("spark-join-2", SparkKind.COMMIT)
    (entry,) = commits[max(commits)]
    commit = read_sample("spark-join-2", entry)
    assert isinstance(commit, SparkCommit)
    assert commit.unique_ids is not None
    assert len(set(commit.unique_ids[0, 0])) == 4


def test_offsets_tell_the_settings_of_their_batch() -> None:
    for name in samples.names():
        for group in entries(name, SparkKind.OFFSETS).values() if name.startswith("spark-") else ():
            offsets = read_sample(name, group[0])
            assert isinstance(offsets, SparkOffsets)
            codec = offsets.settings["spark.sql.streaming.stateStore.compression.codec"]
            assert codec == ("zstd" if "zstd" in name else "lz4")
            assert set(offsets.log_offsets) == ({0, 1} if "join" in name else {0})


def test_changelogs_of_format_1_have_no_lineage() -> None:
    name = "spark-rocksdb-1-changelog"
    for group in entries(name, SparkKind.CHANGELOG).values():
        assert read_sample(name, group[0]) == SparkChangelog(1, None)


def test_a_changelog_in_another_codec_is_not_read() -> None:
    name = "spark-rocksdb-2-zstd"
    for group in entries(name, SparkKind.CHANGELOG).values():
        result = read_sample(name, group[0])
        assert isinstance(result, Unreadable)
        assert result.trouble is Trouble.UNKNOWN_CODEC
        assert "zstd" in str(result)


# --- all forms --------------------------------------------------------------------------------------------------------


def test_a_snapshot_of_ssts_and_logs() -> None:
    data = spark_files.snapshot([f"000008-{U}.sst"], [f"000004-{U}.log"])
    result = read(SNAPSHOT, data)
    assert isinstance(result, SparkSnapshot)
    assert [file.name.decode() for file in result.files] == [f"SSTs/000008-{U}.sst", f"logs/000004-{U}.log"]


@pytest.mark.parametrize(
    ("version", "lineage", "expected"),
    [
        (1, None, SparkChangelog(1, None)),
        (2, None, SparkChangelog(2, None)),
        (3, [], SparkChangelog(3, ())),
        (4, [(8, U), (9, U)], SparkChangelog(4, (LineageItem(8, U.encode()), LineageItem(9, U.encode())))),
    ],
)
def test_changelogs_of_all_versions(version: int, lineage: list[tuple[int, str]] | None, expected: SparkChangelog) -> None:
    assert read(CHANGELOG, spark_files.changelog(lineage, version)) == expected


def test_a_lineage_that_fills_several_blocks() -> None:
    lineage = [(number, U) for number in range(1, 800)]
    result = read(CHANGELOG, spark_files.changelog(lineage))
    assert isinstance(result, SparkChangelog)
    assert result.lineage is not None
    assert len(result.lineage) == 799


def test_a_first_record_that_looks_like_a_text_is_version_1() -> None:
    for records in (b"\xff\xff\xff\xff", b"\x00\x02v)", b"\x00\x05abcde", b""):
        assert read(CHANGELOG, spark_files.changelog(version=1, records=records)) == SparkChangelog(1, None)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"v1\n{}", SparkCommit(1, None)),
        (b"v1", SparkCommit(1, None)),
        (b'v2\n{"nextBatchWatermarkMs":0}', SparkCommit(2, None)),
        (b'v2\n{"stateUniqueIds":{"3":[[],["a","b"]]}}', SparkCommit(2, {(3, 0): (), (3, 1): (b"a", b"b")})),
        (b'v3\n{"stateUniqueIds":{},"sinkMetadataMap":{"x":{}}}', SparkCommit(3, {})),
    ],
)
def test_commits_of_all_versions(data: bytes, expected: SparkCommit) -> None:
    assert read(COMMIT, data) == expected


# --- what is not read: everything stays -------------------------------------------------------------------------------

ZIP = SNAPSHOT


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (ZIP, b"", Trouble.TRUNCATED),
        (ZIP, spark_files.snapshot([f"1-{U}.sst"])[:-10], Trouble.TRUNCATED),
        (ZIP, spark_files.zipped({"CURRENT": b""}), Trouble.FOREIGN),
        (ZIP, spark_files.snapshot(head="v3\n"), Trouble.UNKNOWN_VERSION),
        (ZIP, spark_files.zipped({"metadata": b"v1\n{}"}), Trouble.MALFORMED),
        (ZIP, spark_files.zipped({"metadata": b'v1\n{"sstFiles":[{"sizeBytes":1}]}'}), Trouble.MALFORMED),
        (ZIP, spark_files.snapshot(["../../../metadata"]), Trouble.MALFORMED),
        (ZIP, spark_files.snapshot([""]), Trouble.MALFORMED),
        (ZIP, spark_files.zipped({"metadata": b"v1\n{}"}, zipfile.ZIP_LZMA), Trouble.UNKNOWN_CODEC),
        (ZIP, spark_files.zipped({"metadata": b" " * (17 * 2**20)}), Trouble.TOO_LARGE),
        (ZIP, spark_files.zipped({f"{number:050}": b"" for number in range(12_000)}), Trouble.TOO_LARGE),
        (CHANGELOG, b"", Trouble.TRUNCATED),
        (CHANGELOG, b"a text file", Trouble.FOREIGN),
        (CHANGELOG, b"\x28\xb5\x2f\xfd....", Trouble.UNKNOWN_CODEC),
        (CHANGELOG, b"\x82SNAPPY\x00....", Trouble.UNKNOWN_CODEC),
        (CHANGELOG, b"ZV\x01......", Trouble.UNKNOWN_CODEC),
        (CHANGELOG, spark_files.changelog([(1, U)])[:40], Trouble.TRUNCATED),
        (CHANGELOG, spark_files.changelog([(1, U)])[: -len(spark_files.LZ4_END)], Trouble.TRUNCATED),
        (CHANGELOG, spark_files.changelog(version=5), Trouble.UNKNOWN_VERSION),
        (CHANGELOG, spark_files.changelog(version=3, records=b""), Trouble.TRUNCATED),
        (CHANGELOG, spark_files.changelog(version=3, records=spark_files.java_text("{}")), Trouble.MALFORMED),
        (CHANGELOG, spark_files.lz4_block(b"\xf0", 99, 0x20) + spark_files.LZ4_END, Trouble.TRUNCATED),
        (CHANGELOG, spark_files.lz4_block(b"\x10a\x09\x00", 99, 0x20) + spark_files.LZ4_END, Trouble.MALFORMED),
        (CHANGELOG, spark_files.lz4_block(b"\x10a\x00\x00", 99, 0x20) + spark_files.LZ4_END, Trouble.MALFORMED),
        (CHANGELOG, spark_files.lz4_block(b"a", 1, 0x30) + spark_files.LZ4_END, Trouble.UNKNOWN_CODEC),
        (CHANGELOG, spark_files.lz4_block(b"a", 2**30), Trouble.MALFORMED),
        (CHANGELOG, spark_files.lz4_block(b"a", -1), Trouble.MALFORMED),
        (COMMIT, b"", Trouble.TRUNCATED),
        (COMMIT, b"hello", Trouble.FOREIGN),
        (COMMIT, b"v4\n{}", Trouble.UNKNOWN_VERSION),
        (COMMIT, b"v0\n{}", Trouble.UNKNOWN_VERSION),
        (COMMIT, b"v2", Trouble.TRUNCATED),
        (COMMIT, b"v3\n", Trouble.TRUNCATED),
        (COMMIT, b"v2\n{", Trouble.MALFORMED),
        (COMMIT, b'v2\n{"stateUniqueIds":{"x":[]}}', Trouble.MALFORMED),
        (COMMIT, b'v2\n{"stateUniqueIds":[]}', Trouble.MALFORMED),
        (COMMIT, b'v2\n{"stateUniqueIds":{"0":[["\xff"]]}}', Trouble.MALFORMED),
        (COMMIT, b'v2\n{"more":' + b"[" * 100_000, Trouble.TOO_DEEP),
        (OFFSETS, b"v3\n{}", Trouble.UNKNOWN_VERSION),
        (OFFSETS, b"v1", Trouble.TRUNCATED),
        (OFFSETS, b"v1\n", Trouble.TRUNCATED),
        (OFFSETS, b"v1\n[]", Trouble.MALFORMED),
    ],
)
def test_what_can_not_be_read_says_why(kind: ManifestKind, data: bytes, expected: Trouble) -> None:
    assert trouble(kind, data) is expected


def test_objects_larger_than_any_of_their_kind_are_not_read() -> None:
    for kind in (ZIP, COMMIT, OFFSETS):
        result = kind.read(io.BytesIO(b"v1\n{}"), 2**40)
        assert isinstance(result, Unreadable)
        assert result.trouble is Trouble.TOO_LARGE


def within_bounds(kind: ManifestKind, data: bytes) -> Manifest:
    tracemalloc.start()
    result = read(kind, data)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < LIMIT_BYTES + 4 * len(data)
    return result


def test_a_match_of_gigabytes_yields_what_is_wanted() -> None:
    block = b"\x1fa\x01\x00" + b"\xff" * 400_000 + b"\x00"
    data = spark_files.lz4_block(block, 2**25, 0x2A) + spark_files.LZ4_END
    assert within_bounds(CHANGELOG, data) == SparkChangelog(1, None)


WHOLE: dict[ManifestKind, Callable[[], bytes]] = {
    ZIP: lambda: spark_files.snapshot([f"1-{U}.sst", f"2-{U}.sst"], [f"3-{U}.log"]),
    CHANGELOG: lambda: next(
        content
        for path, file in samples.sample("spark-rocksdb-2-changelog").files.items()
        if path.endswith(b".changelog") and (content := file.content) is not None
    ),
    COMMIT: lambda: spark_files.commit({0: [[U, U], [U]]}),
    OFFSETS: lambda: b'v1\n{"conf":{"a":"b"}}\n{"logOffset":1}',
    METADATA: lambda: own_metadata(OwnMetadata(3, (OwnFile("shared/a", 5, "00"),))),
}


@given(st.sampled_from(sorted(WHOLE, key=lambda kind: kind.name)), st.data())
@settings(max_examples=400, deadline=None)
def test_mutated_manifests_are_read_or_refused_within_bounds(kind: ManifestKind, data: st.DataObject) -> None:
    content = bytearray(WHOLE[kind]())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, 8))
        content[at : at + length] = data.draw(st.binary(max_size=8))
    within_bounds(kind, bytes(content[: data.draw(st.integers(0, len(content)))]))
    within_bounds(kind, bytes(content))


@given(st.sampled_from(list(WHOLE)), st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_noise_is_refused_or_read_within_bounds(kind: ManifestKind, noise: bytes) -> None:
    within_bounds(kind, noise)


# --- Holdfast's own ---------------------------------------------------------------------------------------------------

OWN = OwnMetadata(7, (OwnFile("exclusive/chk-7-a", 5, "00ff", "db/a"), OwnFile("shared/b", 6, "")))
OWN_BYTES = (
    b'{"holdfast":1,"checkpoint":7,"files":[{"name":"exclusive/chk-7-a","size_bytes":5,"digest":"00ff",'
    b'"path":"db/a"},{"name":"shared/b","size_bytes":6,"digest":"","path":""}]}'
)


def test_the_bytes_of_holdfasts_own_metadata_never_change() -> None:
    assert own_metadata(OWN) == OWN_BYTES
    result = read(METADATA, OWN_BYTES)
    assert result == OWN
    assert isinstance(result, OwnMetadata)
    assert {reference.path for reference in result.references} == {b"exclusive/chk-7-a", b"shared/b"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (OWN_BYTES[:-1], Trouble.MALFORMED),
        (OWN_BYTES + b" x", Trouble.MALFORMED),
        (OWN_BYTES.replace(b":1,", b":2,"), Trouble.UNKNOWN_VERSION),
        (OWN_BYTES.replace(b'"holdfast"', b'"ho"'), Trouble.MALFORMED),
        (OWN_BYTES.replace(b"shared/b", b"shared/"), Trouble.MALFORMED),
        (OWN_BYTES.replace(b"shared/b", b"\xff"), Trouble.MALFORMED),
    ],
)
def test_other_bytes_are_not_holdfasts_own(data: bytes, expected: Trouble) -> None:
    assert trouble(METADATA, data) is expected


# --- for fetching ahead -----------------------------------------------------------------------------------------------


def is_manifest(name: bytes) -> bool:
    return isinstance(FORMATS.read_ahead(name), FetchReferences)


def references(fd: int) -> list[bytes]:
    ahead = FORMATS.read_ahead(b"1.zip")
    assert isinstance(ahead, FetchReferences)
    return names_behind(ahead, fd)


def test_a_snapshot_lists_others_and_its_neighbours_do_not() -> None:
    assert is_manifest(b"1.zip")
    assert is_manifest(f"1_{U}.zip".encode())
    for name in (b"1.zip.crc", b".1.zip.crc", b"1.changelog", b"a.zip", f".1.zip.{U}.tmp".encode(), b"metadata", b""):
        assert not is_manifest(name)


def test_references_of_a_file_are_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "1.zip"
    path.write_bytes(spark_files.snapshot([f"1-{U}.sst"]))
    assert references(os.open(path, os.O_RDONLY)) == [f"SSTs/1-{U}.sst".encode()]
    path.write_bytes(b"no zip")
    fd = os.open(path, os.O_RDONLY)
    assert references(fd) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def operator(*paths: object, more: str = "") -> bytes:
    stores = [{"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": list(paths)}]
    return b"v2\n" + json.dumps({"stateStoreInfo": stores}).encode()[:-1] + more.encode() + b"}"


def test_an_operators_metadata_names_the_schemas_of_a_copy() -> None:
    before = operator(
        "file:/mnt/c/team/q/state/0/_stateSchema/default/0_a", "file:/mnt/c/team/q/state/1/b", more=', "x": [1]'
    )
    after = operator("file:/mnt/c/copy/state/0/_stateSchema/default/0_a", "file:/mnt/c/copy/state/1/b", more=', "x": [1]')
    head, _, moved = moved_metadata(before, b"team/q", b"copy").partition(b"\n")
    assert (head, json.loads(moved)) == (b"v2", json.loads(after.partition(b"\n")[2]))


@pytest.mark.parametrize(
    "content",
    [
        operator("file:/mnt/c/other/q/state/0/a"),
        operator("file:/mnt/c/myteam/q/state/0/a"),
        operator("a"),
        operator(1),
        operator("/team/q/state/a", more=', "x": ' + "[" * 100_000 + "]" * 100_000),
        operator("/team/q/state/a", more=', "x": '),
        b"v2\n[]",
        b"",
    ],
)
def test_what_leads_out_of_a_checkpoint_or_is_no_metadata_is_not_copied(content: bytes) -> None:
    with pytest.raises(PlanError):
        moved_metadata(content, b"team/q", b"copy")
