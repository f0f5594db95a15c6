"""Which name is of which kind: the names that Spark, Flink and Hadoop really use (spark_flink.md), and the patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoints.formats import FORMATS
from holdfast.config import NamesSection
from holdfast.errors import ConfigurationError
from holdfast.zones import NameKind, NameTable, sidecar_of, sidecar_owner

TEMPORARY, SIDECAR, WRITE_ONCE, IMMUTABLE, REPLACEABLE = NameKind
UUID = "0a1b2c3d-4e5f-6789-abcd-ef0123456789"
JOB = "a" * 32
VERTEX = "b" * 32
SHA1 = "c" * 40
RANDOM = "d" * 32

NAMES = {
    # Structured Streaming's checkpoint (spark_flink.md, B1)
    "query/metadata": WRITE_ONCE,
    "query/offsets/0": WRITE_ONCE,
    "query/offsets/113258": WRITE_ONCE,
    "query/commits/0": WRITE_ONCE,
    "query/sources/0/0": WRITE_ONCE,
    "query/sources/1/9.compact": WRITE_ONCE,
    "query/state/0/_metadata/metadata": WRITE_ONCE,
    "query/state/0/_metadata/v2/12": WRITE_ONCE,
    "query/state/0/0/_metadata/schema": WRITE_ONCE,
    "query/state/0/0/left-keyToNumValues/_metadata/schema": WRITE_ONCE,
    f"query/state/0/_stateSchema/default/0_{UUID}": WRITE_ONCE,
    "output/_spark_metadata/0": WRITE_ONCE,
    "output/_spark_metadata/9.compact": WRITE_ONCE,
    # in the root of the zone
    "metadata": WRITE_ONCE,
    "offsets/0": WRITE_ONCE,
    # state of format 1: written again by retried tasks
    "query/state/0/0/1.delta": REPLACEABLE,
    "query/state/0/0/10.snapshot": REPLACEABLE,
    "query/state/0/0/1.zip": REPLACEABLE,
    "query/state/0/0/1.changelog": REPLACEABLE,
    "query/state/0/3/left-keyWithIndexToValue/7.zip": REPLACEABLE,
    "query/state/0/0/1.zip.crc": REPLACEABLE,
    # state of format 2, and what RocksDB's snapshots share
    f"query/state/0/0/1_{UUID}.zip": IMMUTABLE,
    f"query/state/0/0/1_{UUID}.changelog": IMMUTABLE,
    f"query/state/0/0/1_{UUID}.zip.crc": IMMUTABLE,
    f"query/state/0/0/SSTs/000008-{UUID}.sst": IMMUTABLE,
    f"query/state/0/0/logs/000004-{UUID}.log": IMMUTABLE,
    # a bare number is reused by RocksDB
    "query/state/0/0/SSTs/000008.sst": REPLACEABLE,
    "query/state/0/0/logs/000004.log": REPLACEABLE,
    # temporary names of Spark's file managers
    f"query/offsets/.5.{UUID}.tmp": TEMPORARY,
    f"query/offsets/.5.{UUID}.TID42.tmp": TEMPORARY,
    f"query/state/0/0/.1.delta.{UUID}.TID7.tmp": TEMPORARY,
    "output/_temporary/0/task_1/part-0": TEMPORARY,
    "output/_temporary/0/_temporary/attempt_202401010000_0001_m_000000_0/part-00000": TEMPORARY,
    # Hadoop's sidecars
    "query/offsets/.5.crc": SIDECAR,
    f"query/offsets/..5.{UUID}.tmp.crc": SIDECAR,
    f"query/state/0/0/SSTs/.000008-{UUID}.sst.crc": SIDECAR,
    f"query/state/0/0/.1_{UUID}.zip.crc.crc": SIDECAR,
    ".metadata.crc": SIDECAR,
    # what only looks alike
    "query/offsets/5a": REPLACEABLE,
    "query/offsets/deeper/5": REPLACEABLE,
    "query/sources/a/0": REPLACEABLE,
    "query/_metadata": REPLACEABLE,
    "query/state/0/0/9.compact": REPLACEABLE,
    f"query/state/0/0/SSTs/000008-{UUID.upper()}.sst": REPLACEABLE,
    # Flink's checkpoints (A4)
    f"{JOB}/chk-17/_metadata": WRITE_ONCE,
    "savepoint-1f2e3d-0123456789ab/_metadata": WRITE_ONCE,
    f"{JOB}/chk-17/{UUID}": IMMUTABLE,
    f"{JOB}/shared/{UUID}": IMMUTABLE,
    f"{JOB}/taskowned/{UUID}": IMMUTABLE,
    f"savepoint-1f2e3d-0123456789ab/{UUID}": IMMUTABLE,
    f"{JOB}/chk-17/._metadata.inprogress.{UUID}": TEMPORARY,
    # segment files of file merging grow: never immutable
    f"{JOB}/shared/job_{JOB}_op_{VERTEX}_0_4/{UUID}": REPLACEABLE,
    f"{JOB}/taskowned/job_{JOB}_tm_localhost-1/{UUID}": REPLACEABLE,
    # Flink's blobs (A3)
    f"job_{JOB}/blob_p-{SHA1}-{RANDOM}": IMMUTABLE,
    f"no_job/blob_t-{SHA1}-{RANDOM}": IMMUTABLE,
    f"cluster/blob/job_{JOB}/blob_p-{SHA1}-{RANDOM}": IMMUTABLE,
    "incoming/temp-00000000": TEMPORARY,
    f"job_{JOB}/blob_p-{SHA1}": REPLACEABLE,
    # anything else
    "a": REPLACEABLE,
    "notes.txt": REPLACEABLE,
    "x.tmp": TEMPORARY,
    ".crc": REPLACEABLE,
    "": REPLACEABLE,
}


@pytest.fixture(scope="module")
def built_in() -> NameTable:
    return NameTable({}, FORMATS.name_kinds)


@pytest.mark.parametrize("name", NAMES)
def test_real_names(built_in: NameTable, name: str) -> None:
    assert built_in.kind_of(name.encode()) is NAMES[name]


@given(st.binary())
def test_any_name_has_a_kind(name: bytes) -> None:
    assert NameTable({}, FORMATS.name_kinds).kind_of(name) in NameKind


@given(st.binary().filter(lambda name: b"/" not in name))
def test_a_temporary_directory_makes_everything_in_it_temporary(name: bytes) -> None:
    if name:
        assert NameTable({}, FORMATS.name_kinds).kind_of(b"out/_temporary/0/" + name) is TEMPORARY


# --- patterns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not_fit"),
    [
        ("a", ["a"], ["b/a", "a/b", "aa", ""]),
        ("*.part", [".part", "x.part"], ["d/x.part", "x.part2"]),
        ("**/*.part", ["x.part", "d/x.part", "d/e/x.part"], ["x.part/y"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "ab", "b/a/c"]),
        ("**/a/**", ["a/b", "x/a/b/c"], ["a", "x/ab/c"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["az", "a/b/zz"]),
        ("**", ["a", "a/b"], [""]),
        ("chk-<n>/x", ["chk-0/x", "chk-17/x"], ["chk-/x", "chk-a/x"]),
        ("<hex>", ["0f", "deadbeef"], ["0F", "xyz", ""]),
        ("b-<uuid>.*", [f"b-{UUID}.x", f"b-{UUID}."], [f"b-{UUID}", "b-0.x"]),
        ("(a|b).[c]+", ["(a|b).[c]+"], ["a.c"]),
        ("käse*", ["käse", "käsebrot"], ["kase"]),
        ("*", ["a", "a\nb"], ["a/b"]),
    ],
)
def test_what_patterns_fit(pattern: str, fits: list[str], does_not_fit: list[str]) -> None:
    table = NameTable({IMMUTABLE: [pattern]}, FORMATS.name_kinds)
    assert {name: table.kind_of(name.encode()) for name in fits} == dict.fromkeys(fits, IMMUTABLE)
    others = {name: table.kind_of(name.encode()) for name in does_not_fit}
    assert IMMUTABLE not in others.values(), others


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("offsets/<number>", "<number> is no word; there are *, <n>, <hex>, <uuid>"),
        ("a<", "< is no word"),
        ("a<b", "<b is no word"),
        ("<UUID>", "<UUID> is no word"),
        ("", "a path below the zone"),
        ("/a", "a path below the zone"),
        ("a/", "a path below the zone"),
        ("a//b", "a path below the zone"),
        ("a**", "** stands between slashes, alone"),
        ("**.tmp", "** stands between slashes, alone"),
        ("a/***/b", "** stands between slashes, alone"),
    ],
)
def test_a_pattern_that_can_not_be_is_refused_with_its_reason(pattern: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        NameTable({TEMPORARY: [pattern]}, FORMATS.name_kinds)
    assert f"names: {pattern!r}: {message}" in str(caught.value)


def test_what_is_configured_goes_before_what_is_built_in() -> None:
    table = NameTable(
        {REPLACEABLE: ["**/offsets/<n>"], WRITE_ONCE: ["**/manifest"], TEMPORARY: ["**/*.part"]}, FORMATS.name_kinds
    )
    assert table.kind_of(b"q/offsets/5") is REPLACEABLE
    assert table.kind_of(b"q/commits/5") is WRITE_ONCE
    assert table.kind_of(b"q/manifest") is WRITE_ONCE
    assert table.kind_of(b"q/x.part") is TEMPORARY


def test_among_the_configured_the_first_kind_counts() -> None:
    table = NameTable({REPLACEABLE: ["a"], TEMPORARY: ["a"], IMMUTABLE: ["a"]}, FORMATS.name_kinds)
    assert table.kind_of(b"a") is TEMPORARY


def test_patterns_that_are_no_utf8_come_from_the_environment_as_they_are() -> None:
    assert NameTable({IMMUTABLE: ["\udcff*"]}, FORMATS.name_kinds).kind_of(b"\xffx") is IMMUTABLE


# --- what a name says about another -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target"),
    [
        (f".5.{UUID}.tmp", "5"),
        (f".1.delta.{UUID}.TID42.tmp", "1.delta"),
        (f"._metadata.inprogress.{UUID}", "_metadata"),
        (f".käse.{UUID}.tmp", "käse"),
        (f".a\nb.{UUID}.tmp", "a\nb"),
        (f"5.{UUID}.tmp", None),
        (".5.tmp", None),
        (f"..{UUID}.tmp", None),
        (f"..5.{UUID}.tmp.crc", None),
        ("5", None),
    ],
)
def test_a_temporary_name_tells_what_it_is_for(name: str, target: str | None) -> None:
    assert FORMATS.temporary_target(name.encode()) == (None if target is None else target.encode())


@pytest.mark.parametrize(
    ("name", "owner"),
    [(".5.crc", "5"), (f"..5.{UUID}.tmp.crc", f".5.{UUID}.tmp"), ("5.crc", None), (".crc", None), ("..crc", None)],
)
def test_a_sidecar_tells_whose_it_is(name: str, owner: str | None) -> None:
    assert sidecar_owner(name.encode()) == (None if owner is None else owner.encode())


@given(st.binary(min_size=1).filter(lambda name: b"/" not in name))
def test_the_owner_of_a_sidecar_has_that_sidecar(name: bytes) -> None:
    assert sidecar_owner(sidecar_of(name)) == name
    assert NameTable({}, FORMATS.name_kinds).kind_of(sidecar_of(name)) in (SIDECAR, TEMPORARY)


def test_every_kind_has_a_key_in_the_configuration_and_every_key_a_kind() -> None:
    assert [NameKind.of_key(key) for key in NamesSection.__struct_fields__] == list(NameKind)


def test_what_stays_here_is_never_asked_about_nor_fetched() -> None:
    for kind in NameKind:
        policy = kind.policy
        assert not (policy.stays_here and (policy.revalidated or policy.fetched_ahead or policy.created_once))
        assert policy.lasts == (not policy.stays_here and not policy.revalidated)
