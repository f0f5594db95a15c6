"""What each name below a Spark checkpoint location is, by the names that Spark 4.3 really makes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.checkpoints.formats.interface import Unknown
from holdfast.checkpoints.formats.spark.names import DEFAULT_STORE, SparkKind, SparkName, StoreId, parse_spark
from holdfast.checkpoints.formats.spark.wrapping import Layer, unwrapped
from tests.support.checkpoints import samples

U = "0a1b2c3d-4e5f-6789-abcd-ef0123456789"
V = "11111111-2222-3333-4444-555555555555"
KNOWN = {
    "metadata": (SparkKind.QUERY_METADATA, None),
    "offsets/0": (SparkKind.OFFSETS, 0),
    "offsets/113258": (SparkKind.OFFSETS, 113258),
    "commits/9223372036854775807": (SparkKind.COMMIT, 2**63 - 1),
    "sources/0/7": (SparkKind.SOURCE_LOG, 7),
    "sources/0/9.compact": (SparkKind.SOURCE_LOG, 9),
    "_spark_metadata/4": (SparkKind.SINK_LOG, 4),
    "out/put/_spark_metadata/9.compact": (SparkKind.SINK_LOG, 9),
    "state/0/_metadata/metadata": (SparkKind.OPERATOR_METADATA, None),
    "state/3/_metadata/v2/12": (SparkKind.OPERATOR_METADATA, 12),
    f"state/0/_stateSchema/default/0_{U}": (SparkKind.STATE_SCHEMA, 0),
    "state/0/5/_metadata/schema": (SparkKind.STATE_SCHEMA, None),
    "state/0/5/left-keyToNumValues/_metadata/schema": (SparkKind.STATE_SCHEMA, None),
    "state/0/5/1.zip": (SparkKind.ZIP, 1),
    "state/0/5/12.changelog": (SparkKind.CHANGELOG, 12),
    "state/0/5/12.delta": (SparkKind.DELTA, 12),
    "state/0/5/12.snapshot": (SparkKind.SNAPSHOT, 12),
    f"state/0/5/12_{U}.zip": (SparkKind.ZIP, 12),
    f"state/0/5/12_{U}.changelog": (SparkKind.CHANGELOG, 12),
    f"state/0/5/left-keyToNumValues/12_{U}.changelog": (SparkKind.CHANGELOG, 12),
    f"state/0/5/SSTs/000008-{U}.sst": (SparkKind.SST, None),
    f"state/0/5/right/SSTs/000008-{U}.sst": (SparkKind.SST, None),
    f"state/0/5/logs/000004-{U}.log": (SparkKind.ARCHIVED_LOG, None),
}
UNKNOWN = [
    "",
    "offsets",
    "offsets/",
    "offsets/x",
    "offsets/-1",
    "offsets/007",
    "offsets/1/2",
    "offsets/18446744073709551616000",
    "commits/5a",
    "state/0/5/1.zipped",
    "state/0/5/SSTs/1.zip",
    "state/0/5/_metadata/1.zip",
    "state/0/x/1.zip",
    "state/0/5/a/b/1.zip",
    f"state/0/5/1_{U.upper()}.zip",
    "state/0/5/SSTs/000008.sst",
    f"state/0/5/SSTs/000008-{U}.sst.bak",
    "notes.txt",
    "state/0/5/1.zip.crc.crc.crc.crc.crc.crc",
]


def known(name: str) -> SparkName:
    entry = parse_spark(name.encode())
    assert isinstance(entry, SparkName), name
    return entry


@pytest.mark.parametrize("name", KNOWN)
def test_known_names(name: str) -> None:
    entry = known(name)
    assert (entry.kind, entry.number) == KNOWN[name]
    assert (entry.name, entry.layers, entry.owner) == (name.encode(), (), name.encode())


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_names_are_unknown_and_kept_as_they_are(name: str) -> None:
    assert parse_spark(name.encode()) == Unknown(name.encode())


def test_state_files_tell_their_store_and_their_attempt() -> None:
    assert known("state/2/5/1.zip").store == StoreId(2, 5, DEFAULT_STORE)
    assert known(f"state/2/5/left/SSTs/000008-{U}.sst").store == StoreId(2, 5, b"left")
    assert known("metadata").store is None
    assert known(f"state/2/5/1_{U}.zip").unique_id == U.encode()
    assert known(f"state/2/5/1_{U}.zip").is_format_2
    assert not known("state/2/5/1.zip").is_format_2
    assert not known(f"state/2/5/SSTs/000008-{U}.sst").is_format_2
    assert known("sources/numbers/3").source == b"numbers"
    assert known("sources/0/9.compact").is_compacted


@pytest.mark.parametrize(
    ("last", "core", "owner", "layers"),
    [
        ("5", "5", "5", ()),
        ("1.zip.crc", "1.zip", "1.zip", (Layer.CHECKSUM,)),
        (".1.zip.crc", "1.zip", "1.zip", (Layer.SIDECAR,)),
        (f".5.{V}.tmp", "5", "5", (Layer.TEMPORARY,)),
        (f".1.delta.{V}.TID42.tmp", "1.delta", "1.delta", (Layer.TEMPORARY,)),
        (f"..5.{V}.tmp.crc", "5", f".5.{V}.tmp", (Layer.SIDECAR, Layer.TEMPORARY)),
        (".1.zip.crc.crc", "1.zip", "1.zip.crc", (Layer.SIDECAR, Layer.CHECKSUM)),
        (f".1.zip.crc.{V}.tmp", "1.zip", "1.zip.crc", (Layer.TEMPORARY, Layer.CHECKSUM)),
        (f"..1.zip.crc.{V}.tmp.crc", "1.zip", f".1.zip.crc.{V}.tmp", (Layer.SIDECAR, Layer.TEMPORARY, Layer.CHECKSUM)),
        (".crc", ".crc", ".crc", ()),
    ],
)
def test_names_around_names(last: str, core: str, owner: str, layers: tuple[Layer, ...]) -> None:
    wrapped = unwrapped(last.encode())
    assert (wrapped.core, wrapped.owner, wrapped.layers) == (core.encode(), owner.encode(), layers)


def test_a_wrapped_name_is_known_by_what_it_is_about() -> None:
    entry = known(f"state/0/0/..12_{U}.zip.crc.{V}.tmp.crc")
    assert (entry.kind, entry.number, entry.unique_id) == (SparkKind.ZIP, 12, U.encode())
    assert entry.owner == f"state/0/0/.12_{U}.zip.crc.{V}.tmp".encode()
    assert entry.is_temporary
    assert not known(f"state/0/0/.12_{U}.zip.crc").is_temporary


@pytest.mark.parametrize("name", [name for name in samples.names() if name.startswith("spark-")])
def test_every_name_of_a_real_checkpoint_is_known(name: str) -> None:
    files = samples.sample(name).files
    assert len(files) > 10
    assert [path for path in files if isinstance(parse_spark(path), Unknown)] == []


@given(st.binary())
@example(b"state/0/0/\xff.zip")
@example(b"sources/\xff\xfe/3")
@example(b"." * 10_000 + b".crc" * 10_000)
def test_any_bytes_are_a_name(name: bytes) -> None:
    assert parse_spark(name).name == name


def test_a_source_or_store_need_not_be_utf8() -> None:
    entry = parse_spark(b"state/0/0/\xff\xfe/3.zip")
    assert isinstance(entry, SparkName)
    assert entry.store == StoreId(0, 0, b"\xff\xfe")
