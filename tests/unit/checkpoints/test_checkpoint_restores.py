"""Which batches and checkpoints can be restored, by listing and manifests (``tests/spark/test_verify.py``: by Spark)."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest

from holdfast.checkpoints.examination import examined
from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.formats.interface import Restore
from holdfast.checkpoints.formats.spark.batch_log import partitions_of_operator
from holdfast.checkpoints.plans import Listed
from holdfast.checkpoints.reachability import places_of, restores
from holdfast.errors import PlanError
from tests.support.checkpoints.roots import Root
from tests.support.checkpoints.samples import sample
from tests.support.checkpoints.toy_format import WITH_TOY, toys
from tests.support.flink import metadata as flink_metadata

SPARK = (
    "spark-hdfs",
    "spark-join-2",
    "spark-rocksdb-1",
    "spark-rocksdb-1-changelog",
    "spark-rocksdb-2",
    "spark-rocksdb-2-changelog",
    "spark-rocksdb-2-zstd",
)
FLINK = ("flink-incremental", "flink-exclusive", "flink-changelog", "flink-merging", "flink-finished", "flink-unaligned")


def judged(root: Root, batch: int | None = None, spoilt: Collection[bytes] = ()) -> dict[str, Restore]:
    found = examined(restores(root.listing(), batch, spoilt), root.open)
    return {each.name.decode(): each for each in found}


def spark(name: str = "spark-rocksdb-1-changelog") -> Root:
    return Root.of_sample(sample(name))


def listed_as_written(name: str) -> list[Listed]:
    """A sample's listing with the sizes that its engine wrote, also of files whose bytes the sample does not have."""
    return [Listed(path, file.size_bytes, file.mtime_ns) for path, file in sample(name).files.items()]


@pytest.mark.parametrize("name", SPARK)
def test_of_a_whole_query_every_batch_can_be_restored_but_the_oldest_that_is_being_purged(name: str) -> None:
    found = list(judged(spark(name)).values())
    assert len(found) >= 3
    assert all(each.is_good for each in found[1:])
    assert found[0].is_good or found[0].is_expired
    assert [each.is_newest for each in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize("name", FLINK)
def test_of_a_whole_job_every_checkpoint_and_savepoint_can_be_restored(name: str) -> None:
    root = Root.of_sample(sample(name))
    found = examined(restores(listed_as_written(name)), root.open)
    assert found
    assert all(each.is_good for each in found), [each.faults for each in found]


@pytest.mark.parametrize("name", SPARK)
def test_each_file_that_it_says_is_read_is_there(name: str) -> None:
    root = spark(name)
    for restore in judged(root).values():
        if restore.is_good:
            assert set(restore.files()) <= root.files.keys()


@pytest.mark.parametrize("name", SPARK)
def test_without_a_file_that_is_read_it_is_not_restored_or_by_other_files(name: str) -> None:
    root = spark(name)
    whole = {each.name: each for each in judged(root).values() if each.is_good}
    newest = max(whole.values(), key=lambda each: each.is_newest)
    for file in sorted(set(newest.files())):
        content = root.files.pop(file)
        then = {each.name: each for each in judged(root).values()}.get(newest.name)
        assert then is None or not then.is_good or set(then.files()) != set(newest.files()), file
        root.files[file] = content


def test_an_older_snapshot_with_the_changes_since_will_do_and_it_says_so() -> None:
    root = spark()
    root.files[b"state/0/0/9.zip"] = (b"PK", 0)
    newest = judged(root)["commits/8"]
    assert newest.is_good
    assert newest.remarks[0].startswith("state/0/0/9.zip: truncated")
    assert b"state/0/0/6.zip" in set(newest.files())


def test_what_is_known_to_be_spoilt_is_as_good_as_lost() -> None:
    root = spark()
    assert judged(root, spoilt={b"state/0/0/9.zip"})["commits/8"].is_good
    assert not judged(root, spoilt={b"state/0/0/9.zip", b"state/0/0/8.changelog"})["commits/8"].is_good


def test_a_change_that_was_cut_short_is_told_by_its_end() -> None:
    root = spark()
    content, time_ns = root.files[b"state/0/0/8.changelog"]
    root.files[b"state/0/0/8.changelog"] = (content[:-1], time_ns)
    assert [fault.name for fault in judged(root)["commits/7"].faults] == [b"state/0/0/8.changelog"]


def test_a_shared_file_of_another_size_is_told_by_the_snapshot() -> None:
    root = spark("spark-rocksdb-1")
    name = next(iter(sorted(each for each in root.files if each.endswith(b".sst"))))
    root.files[name] = (b"short", 0)
    bad = [each for each in judged(root).values() if not each.is_good and not each.is_expired]
    assert bad
    assert "5 bytes instead of" in bad[0].faults[0].why


def test_a_batch_under_way_is_run_again_and_its_offsets_have_to_be_whole() -> None:
    root = spark()
    del root.files[b"commits/8"]
    found = judged(root)
    assert found["commits/7"].is_newest
    assert found["commits/7"].is_good
    assert found["commits/7"].remarks == ("a restart runs batch 8 again, which was not committed",)
    root.files[b"offsets/8"] = (b'v1\n{}\n{"logOff', 0)
    assert [fault.name for fault in judged(root)["commits/7"].faults] == [b"offsets/8"]


def test_a_location_that_has_lost_its_metadata_is_one_that_cannot_be_restored() -> None:
    root = spark()
    del root.files[b"metadata"]
    assert all(each.faults[0].name == b"metadata" for each in judged(root).values())


@pytest.mark.parametrize("name", ["spark-rocksdb-1-changelog", "spark-rocksdb-2-changelog"])
def test_a_batch_whose_commit_is_lost_between_others_is_run_again(name: str) -> None:
    root = spark(name)
    *_, batch, _ = sorted(int(each.rpartition("/")[2]) for each in judged(root))
    del root.files[b"commits/%d" % batch]
    found = judged(root)
    lost = found[f"commits/{batch}"]
    assert lost.is_good
    assert lost.remarks == (f"a restart runs batch {batch} again, which was not committed",)
    assert b"commits/%d" % (batch - 1) in set(lost.files())
    del root.files[b"commits/%d" % (batch - 1)]  # the state that it goes on from can't be told now, in format 2
    assert judged(root)[f"commits/{batch}"].is_good is (name == "spark-rocksdb-1-changelog")


def test_numbers_that_somebody_made_up_cost_nothing() -> None:
    root = spark()
    huge = 10**18
    root.write(f"commits/{huge}", b"v1\n{}")
    root.write(f"offsets/{huge}", b'v1\n{"conf":{"spark.sql.shuffle.partitions":"999999999"}}\n{"logOffset":%d}' % huge)
    root.write(f"sources/0/{huge}", b"v1\n{}")
    stores = ",".join(f'{{"storeName":"s{number}","numPartitions":2147483647}}' for number in range(1000))
    root.write("state/0/_metadata/metadata", b'v1\n{"stateStoreInfo":[%s]}' % stores.encode())
    found = judged(root)
    assert not found[f"commits/{huge}"].is_good
    assert len(found[f"commits/{huge}"].faults) < 5000


def test_one_batch_alone_is_judged_as_among_the_others() -> None:
    root = spark()
    assert judged(root, 7) == {"commits/7": judged(root)["commits/7"]}
    with pytest.raises(PlanError, match="no batch 77"):
        judged(root, 77)


def test_a_new_format_says_itself_what_a_restart_reads() -> None:
    root = toys()
    found = {each.name: each.is_good for each in examined(restores(root.listing(), formats=WITH_TOY), root.open)}
    assert found == {b"tables/t/log/1": True, b"tables/t/log/2": True, b"toy/ckpt-2": True, b"toy/ckpt-3": True}
    root.delete([b"toy/data/c", b"tables/t/part-0/2"])
    found = {each.name: each.is_good for each in examined(restores(root.listing(), formats=WITH_TOY), root.open)}
    assert found == {b"tables/t/log/1": True, b"tables/t/log/2": False, b"toy/ckpt-2": True, b"toy/ckpt-3": False}


@pytest.mark.parametrize("sample_name", FLINK)
def test_a_file_of_a_job_that_was_cut_short_is_told_by_the_metadata(sample_name: str) -> None:
    root = Root.of_sample(sample(sample_name))
    listing = listed_as_written(sample_name)
    options = {  # RocksDB's, that no restart reads; a merged file that begins with them has nothing else in the sample
        found[1]
        for name, (content, _) in root.files.items()
        for found in re.finditer(
            rb"OPTIONS-[0-9]+(?:\x02.{10}[!-~]+?/|\x06..|\x0f\0{8}.{14}[!-~]+?/)([0-9a-f-]{36})", content, re.DOTALL
        )
        if name.endswith(b"/_metadata")
    }
    for name in {name for each in examined(restores(listing), root.open) for name in each.files()}:
        if not name.endswith(b"/_metadata"):
            cut = [Listed(each.name, 0, 0) if each.name == name else each for each in listing]
            is_restored = all(each.is_good for each in examined(restores(cut), root.open))
            assert is_restored is (name.rpartition(b"/")[2] in options), name


def test_a_merged_file_has_to_reach_to_the_end_of_the_last_part_that_flink_reads() -> None:
    """Of the newest checkpoint's two files with RocksDB's options one has nothing else, one CURRENT behind them."""
    root = Root.of_sample(sample("flink-merging"))
    listing = listed_as_written("flink-merging")

    def is_restored(uuid: bytes, size_bytes: int) -> bool:
        cut = [Listed(each.name, size_bytes, 0) if each.name.endswith(uuid) else each for each in listing]
        return all(each.is_good for each in examined(restores(cut), root.open) if each.is_newest)

    alone, with_current = b"9ef421b4-ae25-466d-9cd1-fb381c5b9ed1", b"6c299edd-045b-4272-beac-1e821cabebd3"
    assert is_restored(alone, 0)
    assert is_restored(with_current, 241_039)
    assert not is_restored(with_current, 241_038)


def test_a_copy_of_a_savepoint_is_judged_by_its_own_files_under_any_name() -> None:
    root = Root()
    file = "5d0c53a1-0000-4000-8000-000000000001"
    for directory in ("savepoint-0a1b2c-0123456789ab", "copies/mine"):
        root.write(f"{directory}/_metadata", flink_metadata.with_files([], 1, [file.encode()]))
        root.write(f"{directory}/{file}", b"state" * 100)
    root.write("table/_metadata", b"PAR1")  # of another program
    assert {name: each.is_good for name, each in judged(root).items()} == {
        "savepoint-0a1b2c-0123456789ab": True,
        "copies/mine": True,
    }
    root.delete([f"copies/mine/{file}".encode()])
    assert {name: each.is_good for name, each in judged(root).items()} == {
        "savepoint-0a1b2c-0123456789ab": True,
        "copies/mine": False,
    }


def test_a_path_may_name_a_batch_or_a_checkpoint() -> None:
    assert [tuple(place) for place in places_of(b"q/commits/7", None, FORMATS)] == [(b"q", 7, None, False)]
    assert [tuple(place) for place in places_of(b"jobs/j/chk-3", None, FORMATS)] == [(b"jobs", None, b"j/chk-3", False)]
    assert tuple(places_of(b"q", 7, FORMATS)[0]) == (b"q", 7, None, False)
    with pytest.raises(PlanError, match="is batch 7, not 8"):
        places_of(b"q/commits/7", 8, FORMATS)


def test_a_snapshot_of_spark_4_0_is_read() -> None:
    found = judged(spark("spark-4.0-snapshot-v2"))
    assert {name: each.is_good or each.is_expired for name, each in found.items()} == {
        "commits/5": True,
        "commits/6": True,
        "commits/7": True,
    }
    assert b"state/0/0/SSTs/000029-f3acdb61-12c6-48e7-b4cf-804c09ed60ce.sst" in set(found["commits/7"].files())


@pytest.mark.parametrize(
    ("name", "engine", "is_good", "why"),
    [
        ("spark-4.0-snapshot-v2", None, True, "Spark 4.0 wrote snapshots ('v2') that no other Spark reads"),
        ("spark-4.0-snapshot-v2", (4, 0), True, ""),
        ("spark-4.0-snapshot-v2", (4, 1), False, "this Spark does not read version 2 of it"),
        ("spark-4.0-snapshot-v2", (4, 3), False, "this Spark does not read version 2 of it"),
        ("spark-rocksdb-2-changelog", (4, 0), False, "this Spark does not read version 1 of it"),
        ("spark-rocksdb-2-changelog", (4, 1), True, ""),
        ("spark-rocksdb-1-changelog", (4, 0), True, ""),
    ],
)
def test_spark_4_0_and_the_others_do_not_read_each_others_snapshots_of_format_2(
    name: str, engine: tuple[int, int] | None, is_good: bool, why: str
) -> None:
    root = spark(name)
    newest = next(each for each in examined(restores(root.listing(), None, engine=engine), root.open) if each.is_newest)
    assert newest.is_good == is_good
    said = {*newest.remarks, *(fault.why for fault in newest.faults)}
    assert why in said if why else not said


def test_after_spark_s_own_repartitioning_all_partitions_are_judged() -> None:
    found = judged(spark("damaged-spark-repartitioned"))  # without the snapshot of partition 4 and an SST of partition 3
    assert found["commits/1"].is_good
    assert {b"/".join(fault.name.split(b"/")[:3]) for fault in found["commits/2"].faults} == {b"state/0/3", b"state/0/4"}


def test_a_batch_is_judged_as_the_last_without_what_later_ones_have_left() -> None:
    root = spark("damaged-spark-empty-offsets")
    (as_it_is,) = examined(restores(root.listing(), 6), root.open)
    assert [fault.name for fault in as_it_is.faults] == [b"offsets/7"]
    (as_the_last,) = examined(restores(root.listing(), 6, is_last=True), root.open)
    assert as_the_last.is_good
    assert b"offsets/7" not in set(as_the_last.files())


def test_without_any_commit_a_restart_runs_the_newest_batch_again() -> None:
    root = spark("damaged-spark-empty-offsets")
    root.delete([b"offsets/7", *(name for name in root.files if name.startswith(b"commits/"))])
    found = judged(root)["commits/6"]
    assert (found.is_good, found.is_newest) == (True, True)
    assert found.remarks == ("a restart runs batch 6 again, which was not committed",)


@pytest.mark.parametrize(
    ("by_metadata", "by_settings", "there", "by_commit", "partitions"),
    [
        (2, 5, 4, 0, 5),  # repartitioned to more, one has lost all its files
        (5, 2, 5, 0, 2),  # repartitioned to fewer, old files are still there
        (1, 5, 1, 0, 1),  # a global limit
        (1, 5, 4, 0, 5),  # repartitioned from one
        (2, 0, 5, 0, 5),  # offsets that can't be read
        (0, 3, 2, 0, 3),  # no metadata
        (2, 2, 2, 4, 4),
    ],
)
def test_the_number_of_partitions(by_metadata: int, by_settings: int, there: int, by_commit: int, partitions: int) -> None:
    assert partitions_of_operator(by_metadata, by_settings, there, by_commit) == partitions


@pytest.mark.parametrize(("engine", "is_good"), [((3, 5), False), ((4, 1), False), ((4, 2), True), (None, True)])
def test_only_spark_4_2_and_later_begin_from_an_older_snapshot(engine: tuple[int, int] | None, is_good: bool) -> None:
    root = spark("damaged-spark-empty-offsets")
    root.write("state/0/0/6.zip", b"not a zip")
    (found,) = examined(restores(root.listing(), 6, is_last=True, engine=engine), root.open)
    assert found.is_good == is_good
    told = any("only Spark 4.2 and later" in remark for remark in found.remarks)
    assert told == is_good
