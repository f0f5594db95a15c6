"""What a sweep takes of Spark's checkpoints, and all that a retained batch needs."""

from __future__ import annotations

import pytest

from holdfast.checkpoints.manifests import Trouble
from holdfast.checkpoints.reachability import Phase, Policy, Reason, sweep
from tests.support.checkpoints import samples
from tests.support.checkpoints.roots import DAY, HOUR, Root, reasons, uuid
from tests.support.spark import files as spark_files
from tests.support.spark.restore import Checkpoint

POLICY = Policy(grace_ns=HOUR, abandoned_ns=DAY, min_batches_to_retain=2)
SAMPLES = [name for name in samples.names() if name.startswith("spark-")]
STORE = "q/state/0/0"


def location(commits: range, ids: dict[int, int] | None = None) -> Root:
    """A query with these commits, a day old; ``ids`` gives the unique id of each version."""
    root = Root()
    root.write("q/metadata", b'{"id":"x"}', age_ns=9 * DAY)
    for batch in commits:
        unique_ids = None if ids is None else {0: [[uuid(ids[batch + 1])]]}
        root.write(f"q/offsets/{batch}", b"v1\n{}", age_ns=DAY)
        root.write(f"q/commits/{batch}", spark_files.commit(unique_ids), age_ns=DAY)
    return root


def add_state(root: Root, *names: str, age_ns: int = DAY) -> None:
    for name in names:
        content = spark_files.snapshot() if name.endswith(".zip") else b"x"
        root.write(f"{STORE}/{name}", content, age_ns=age_ns)


# --- real checkpoints -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_every_version_of_a_real_checkpoint_that_could_be_restored_still_can(name: str) -> None:
    root = Root.of_sample(samples.sample(name))
    before = Checkpoint(root).restorable()
    assert before
    plan = root.sweep(Policy(HOUR, DAY, min_batches_to_retain=4))
    assert plan.kept == ()
    root.execute(plan)
    assert Checkpoint(root).restorable() == before
    assert root.sweep(Policy(HOUR, DAY, min_batches_to_retain=4)).entries == ()


@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_real_spark_has_left_behind_goes(name: str) -> None:
    root = Root.of_sample(samples.sample(name))
    plan = root.sweep(Policy(HOUR, DAY, min_batches_to_retain=4))
    left = {entry.name for entry in plan.entries}
    assert {name for name in root.files if name.endswith((b".tmp", b".tmp.crc"))} <= left
    if name == "spark-rocksdb-1":
        assert Reason.UNREFERENCED in reasons(plan).values(), "a state was overwritten by a batch that ran again"


def test_lost_attempts_go_when_their_version_has_left_the_window() -> None:
    root = Root.of_sample(samples.sample("spark-rocksdb-2-changelog"))
    newest = sorted(int(name[8:]) for name in root.files if name.startswith(b"commits/") and name[8:].isdigit())[-1]
    lost = {version for version in range(newest) if len(list(_attempts(root, version))) > 1}
    assert lost
    root.delete([b"commits/%d" % batch for batch in range(newest - 1)])
    before = Checkpoint(root).restorable()
    plan = root.sweep(Policy(HOUR, DAY, min_batches_to_retain=1))
    assert plan.kept == ()
    root.execute(plan)
    assert Checkpoint(root).restorable() == before != set()
    lost_or_old = [entry for entry in plan.entries if entry.reason in (Reason.FAILED_ATTEMPT, Reason.EXPIRED_VERSION)]
    assert len(lost_or_old) > 4
    assert all(len(list(_attempts(root, version))) <= 1 for version in lost if version < newest - 1)


def _attempts(root: Root, version: int) -> set[bytes]:
    beginning = b"state/0/0/%d_" % version
    return {name[len(beginning) :].partition(b".")[0] for name in root.files if name.startswith(beginning)}


# --- format 1 ---------------------------------------------------------------------------------------------------------


def test_the_newest_snapshot_below_the_window_and_all_changes_since_stay() -> None:
    root = location(range(18, 21))
    add_state(root, "10.zip", "15.zip", "20.zip", *(f"{version}.changelog" for version in range(8, 22)))
    gone = {f"{STORE}/{version}.changelog" for version in range(8, 15)} | {f"{STORE}/10.zip"}
    assert reasons(root.sweep(POLICY)) == dict.fromkeys(gone, Reason.EXPIRED_VERSION)


def test_a_snapshot_within_the_window_is_no_base_for_its_oldest_batch() -> None:
    root = location(range(18, 21))
    add_state(root, "19.zip", *(f"{version}.changelog" for version in range(1, 22)))
    assert root.sweep(POLICY).entries == ()


def test_deltas_and_snapshots_of_the_hdfs_backed_provider() -> None:
    root = location(range(18, 21))
    add_state(root, "10.snapshot", "17.snapshot", *(f"{version}.delta" for version in range(9, 22)))
    gone = {f"{STORE}/{version}.delta" for version in range(9, 17)} | {f"{STORE}/10.snapshot"}
    assert reasons(root.sweep(POLICY)) == dict.fromkeys(gone, Reason.EXPIRED_VERSION)


def test_more_batches_are_retained_than_there_are_commits_when_the_policy_says_so() -> None:
    root = location(range(18, 21))
    add_state(root, "10.zip", "15.zip")
    assert root.sweep(Policy(HOUR, DAY, min_batches_to_retain=9)).entries == ()


def test_spark_keeps_more_than_the_policy_asks_for() -> None:
    root = location(range(12, 21))
    add_state(root, "10.zip", "15.zip")
    assert root.sweep(POLICY).entries == ()


def test_each_store_has_its_own_base() -> None:
    root = location(range(18, 21))
    for store in ("q/state/0/1", "q/state/1/0/left"):
        root.write(f"{store}/9.zip", spark_files.snapshot(), age_ns=DAY)
        root.write(f"{store}/10.changelog", age_ns=DAY)
    add_state(root, "9.zip", "17.zip")
    assert reasons(root.sweep(POLICY)) == {f"{STORE}/9.zip": Reason.EXPIRED_VERSION}


def test_without_a_commit_no_state_goes() -> None:
    root = location(range(0))
    root.write("q/offsets/0", b"v1\n{}", age_ns=DAY)
    add_state(root, "1.zip", f"SSTs/000001-{uuid(1)}.sst")
    plan = root.sweep(POLICY)
    assert plan.entries == ()
    assert plan.kept[0].scope == b"q"


# --- SSTs and logs ----------------------------------------------------------------------------------------------------


def test_ssts_and_logs_in_no_remaining_snapshot_go_after_the_snapshots_that_go() -> None:
    root = location(range(18, 21))
    names = [f"00000{number}-{uuid(number)}.sst" for number in range(4)]
    log = f"000004-{uuid(4)}.log"
    for name in names:
        add_state(root, f"SSTs/{name}")
    add_state(root, f"logs/{log}", f"logs/000005-{uuid(5)}.log", "SSTs/000006.sst")
    root.write(f"{STORE}/10.zip", spark_files.snapshot(names[:2]), age_ns=DAY)
    root.write(f"{STORE}/17.zip", spark_files.snapshot(names[1:3], [log]), age_ns=DAY)
    plan = root.sweep(POLICY)
    gone = {f"{STORE}/SSTs/{names[0]}", f"{STORE}/SSTs/{names[3]}", f"{STORE}/logs/000005-{uuid(5)}.log"}
    assert reasons(plan) == {**dict.fromkeys(gone, Reason.UNREFERENCED), f"{STORE}/10.zip": Reason.EXPIRED_VERSION}
    assert plan.entries[0].name == f"{STORE}/10.zip".encode()
    assert plan.entries[0].phase is Phase.MANIFEST


def test_an_sst_whose_snapshot_is_still_being_written_is_young() -> None:
    root = location(range(18, 21))
    add_state(root, "20.zip")
    add_state(root, f"SSTs/000001-{uuid(1)}.sst", age_ns=HOUR - 1)
    assert root.sweep(POLICY).entries == ()


@pytest.mark.parametrize("content", [b"", b"no zip", spark_files.snapshot(head="v3\n")])
def test_a_snapshot_that_can_not_be_read_keeps_all_shared_files_of_its_store(content: bytes) -> None:
    root = location(range(18, 21))
    add_state(root, f"SSTs/000001-{uuid(1)}.sst", "10.zip", "16.zip")
    root.write(f"{STORE}/20.zip", content, age_ns=DAY)
    root.write(f"q/state/0/1/SSTs/000001-{uuid(1)}.sst", age_ns=DAY)
    root.write("q/state/0/1/20.zip", spark_files.snapshot(), age_ns=DAY)
    plan = root.sweep(POLICY)
    assert reasons(plan) == {
        f"{STORE}/10.zip": Reason.EXPIRED_VERSION,
        f"q/state/0/1/SSTs/000001-{uuid(1)}.sst": Reason.UNREFERENCED,
    }
    assert [kept.scope.decode() for kept in plan.kept] == [f"{STORE}/20.zip"]


# --- format 2 ---------------------------------------------------------------------------------------------------------


def chained(versions: range, snapshots: tuple[int, ...] = (), lost: tuple[int, ...] = ()) -> Root:
    """A query of format 2: the true attempt of version v has id v, a lost one 100 + v."""
    root = location(range(18, 21), {version: version for version in range(30)})
    for version in versions:
        base = max((snapshot for snapshot in snapshots if snapshot < version), default=0)
        lineage = [(each, uuid(each)) for each in range(max(1, base), version)]
        root.write(f"{STORE}/{version}_{uuid(version)}.changelog", spark_files.changelog(lineage), age_ns=DAY)
        if version in lost:
            root.write(f"{STORE}/{version}_{uuid(100 + version)}.changelog", spark_files.changelog(lineage), age_ns=DAY)
    for version in snapshots:
        root.write(f"{STORE}/{version}_{uuid(version)}.zip", spark_files.snapshot(), age_ns=DAY)
    return root


def test_the_lineage_of_the_oldest_retained_version_tells_what_it_needs() -> None:
    root = chained(range(10, 22), snapshots=(12, 16), lost=(13, 17, 20))
    gone = {f"{STORE}/{version}_{uuid(version)}.changelog": Reason.EXPIRED_VERSION for version in range(10, 16)}
    gone |= {
        f"{STORE}/12_{uuid(12)}.zip": Reason.EXPIRED_VERSION,
        f"{STORE}/13_{uuid(113)}.changelog": Reason.EXPIRED_VERSION,
    }
    gone |= {f"{STORE}/17_{uuid(117)}.changelog": Reason.FAILED_ATTEMPT}
    assert reasons(root.sweep(POLICY)) == gone


def test_a_lost_snapshot_is_no_base() -> None:
    root = chained(range(10, 22), snapshots=(12,), lost=(16,))
    root.write(f"{STORE}/16_{uuid(116)}.zip", spark_files.snapshot(), age_ns=DAY)
    plan = root.sweep(POLICY)
    assert f"{STORE}/13_{uuid(13)}.changelog" not in reasons(plan)
    assert reasons(plan)[f"{STORE}/16_{uuid(116)}.zip"] is Reason.FAILED_ATTEMPT


def test_a_chain_from_the_very_first_version_needs_no_snapshot() -> None:
    root = chained(range(1, 22), lost=(1, 5))
    gone = {f"{STORE}/{version}_{uuid(100 + version)}.changelog": Reason.FAILED_ATTEMPT for version in (1, 5)}
    assert reasons(root.sweep(POLICY)) == gone


def test_a_chain_goes_on_below_a_snapshot_that_was_never_uploaded() -> None:
    root = chained(range(10, 22), snapshots=(12, 16), lost=(11, 15))
    root.delete([f"{STORE}/16_{uuid(16)}.zip".encode()])
    gone = {f"{STORE}/{version}_{uuid(version)}.changelog": Reason.EXPIRED_VERSION for version in (10, 11)}
    gone |= {
        f"{STORE}/11_{uuid(111)}.changelog": Reason.EXPIRED_VERSION,
        f"{STORE}/15_{uuid(115)}.changelog": Reason.FAILED_ATTEMPT,
    }
    assert reasons(root.sweep(POLICY)) == gone


def test_state_of_the_oldest_commits_may_be_gone_already() -> None:
    """Spark keeps one version less than commits."""
    root = chained(range(20, 22), snapshots=(20,), lost=())
    root.write(f"{STORE}/17_{uuid(117)}.changelog", spark_files.changelog([]), age_ns=DAY)
    assert reasons(root.sweep(POLICY)) == {f"{STORE}/17_{uuid(117)}.changelog": Reason.EXPIRED_VERSION}


@pytest.mark.parametrize(
    ("name", "content", "trouble"),
    [
        (f"{STORE}/19_{uuid(19)}.changelog", b"\x28\xb5\x2f\xfd....", Trouble.UNKNOWN_CODEC),
        (f"{STORE}/19_{uuid(19)}.changelog", b"", Trouble.TRUNCATED),
        (f"{STORE}/19_{uuid(19)}.changelog", spark_files.changelog(version=1), None),
        (f"{STORE}/19_{uuid(19)}.changelog", spark_files.changelog([(18, uuid(99)), (16, uuid(16))]), None),
        ("q/commits/18", b"v9\n{}", Trouble.UNKNOWN_VERSION),
        ("q/commits/18", b"", Trouble.TRUNCATED),
    ],
)
def test_without_a_whole_lineage_no_attempt_goes(name: str, content: bytes, trouble: Trouble | None) -> None:
    root = chained(range(10, 22), snapshots=(12, 16), lost=(13, 17))
    root.write(name, content, age_ns=DAY)
    plan = root.sweep(POLICY)
    assert plan.entries == ()
    assert [kept.trouble for kept in plan.kept] == [trouble]


def test_a_store_that_no_commit_speaks_of_stays() -> None:
    root = chained(range(10, 22), snapshots=(12, 16))
    other = root.write(f"q/state/7/0/3_{uuid(3)}.changelog", age_ns=DAY)
    plan = root.sweep(POLICY)
    assert other not in {entry.name for entry in plan.entries}
    assert plan.kept[0].scope == b"q/state/7/0"


def test_few_questions_are_asked() -> None:
    root = chained(range(10, 22), snapshots=(12, 16), lost=(13,))
    add_state(root, f"SSTs/000001-{uuid(1)}.sst")
    rounds = []
    examination = sweep(root.listing(), POLICY, root.now_ns)
    while examination.wanted:
        rounds.append([wanted.name.decode().removeprefix("q/") for wanted in examination.wanted])
        examination.supply(root.answers(examination.wanted))
    assert rounds == [
        ["commits/18", "commits/19", "commits/20"],
        [f"state/0/0/19_{uuid(19)}.changelog"],
        [f"state/0/0/16_{uuid(16)}.zip"],
    ]


# --- temporary files and checksums ------------------------------------------------------------------------------------


def test_temporary_files_of_dead_writers_go_with_their_checksums() -> None:
    root = location(range(18, 21))
    names = [
        f"q/offsets/.21.{uuid(1)}.tmp",
        f"{STORE}/.21.zip.{uuid(2)}.TID7.tmp",
        f"{STORE}/..21.zip.{uuid(2)}.TID7.tmp.crc",
        f"{STORE}/.21_{uuid(1)}.changelog.crc.{uuid(3)}.tmp",
        f"q/state/0/_metadata/.metadata.{uuid(4)}.tmp",
    ]
    for name in names:
        root.write(name, age_ns=2 * HOUR)
    root.write(f"q/commits/.21.{uuid(5)}.tmp", age_ns=HOUR - 1)
    assert reasons(root.sweep(POLICY)) == dict.fromkeys(names, Reason.TEMPORARY)


def test_a_checksum_shares_the_fate_of_its_file() -> None:
    root = location(range(18, 21))
    for version in (10, 17):
        add_state(root, f"{version}.zip", f"{version}.zip.crc", f".{version}.zip.crc", f".{version}.zip.crc.crc")
    add_state(root, ".9.zip.crc", f"9_{uuid(9)}.changelog.crc")
    root.write("q/offsets/.3.crc", age_ns=2 * HOUR)
    root.write("q/offsets/.2.crc", age_ns=HOUR - 1)
    root.write("q/.metadata.crc", age_ns=DAY)
    root.write("q/offsets/.20.crc", age_ns=DAY)
    gone = {f"{STORE}/{name}": Reason.EXPIRED_VERSION for name in ("10.zip", "10.zip.crc", ".10.zip.crc", ".10.zip.crc.crc")}
    orphans = {f"{STORE}/.9.zip.crc", f"{STORE}/9_{uuid(9)}.changelog.crc", "q/offsets/.3.crc"}
    plan = root.sweep(POLICY)
    assert reasons(plan) == {**gone, **dict.fromkeys(orphans, Reason.ORPHANED_CHECKSUM)}
    assert [entry.phase for entry in plan.entries] == [Phase.MANIFEST] + [Phase.CHECKSUM] * 6


def test_the_log_of_a_file_sink_is_tidied_wherever_it_stands() -> None:
    root = Root()
    names = [f"out/_spark_metadata/.3.{uuid(1)}.tmp", "out/_spark_metadata/.2.crc"]
    for name in [*names, "out/_spark_metadata/3", "out/_spark_metadata/.3.crc", "out/part-0"]:
        root.write(name, age_ns=DAY)
    assert reasons(root.sweep(POLICY)) == {names[0]: Reason.TEMPORARY, names[1]: Reason.ORPHANED_CHECKSUM}


# --- whose a name is --------------------------------------------------------------------------------------------------


def test_logs_schemas_metadata_and_unknown_names_are_sparks_to_purge() -> None:
    root = location(range(18, 21))
    for name in ("offsets/1", "sources/0/1", "sources/0/9.compact", "state/0/_metadata/v2/1", "notes", "state/0/0/x.zip"):
        root.write(f"q/{name}", age_ns=99 * DAY)
    root.write(f"q/state/0/_stateSchema/default/0_{uuid(1)}", age_ns=99 * DAY)
    root.write(f"q/shared/{uuid(1)}", age_ns=99 * DAY)
    root.write(f"q/{'a' * 32}/chk-1/{uuid(1)}", age_ns=99 * DAY)
    assert root.sweep(POLICY).entries == ()


def test_state_without_logs_beside_it_is_no_query() -> None:
    root = Root()
    root.write("q/metadata", age_ns=DAY)
    add_state(root, "1.zip", f"SSTs/000001-{uuid(1)}.sst", f".1.zip.{uuid(1)}.tmp")
    assert root.sweep(POLICY).entries == ()


def test_several_queries_and_flink_jobs_under_one_root() -> None:
    root = location(range(18, 21))
    add_state(root, "10.zip", "17.zip")
    for name, (content, mtime_ns) in list(root.files.items()):
        root.files[b"team/" + name] = (content, mtime_ns)
    job = f"flink/{'a' * 32}"
    root.write(f"{job}/chk-3/_metadata", b"garbage", age_ns=DAY)
    root.write(f"{job}/chk-2/{uuid(1)}", age_ns=DAY)
    plan = root.sweep(POLICY)
    assert reasons(plan) == dict.fromkeys([f"{STORE}/10.zip", f"team/{STORE}/10.zip"], Reason.EXPIRED_VERSION)
    assert len(plan.kept) == 1


def test_a_query_in_the_root_itself() -> None:
    root = location(range(18, 21))
    root.files = {name.removeprefix(b"q/"): file for name, file in root.files.items()}
    root.write("state/0/0/10.zip", spark_files.snapshot(), age_ns=DAY)
    root.write("state/0/0/17.zip", spark_files.snapshot(), age_ns=DAY)
    root.write("offsets/.3.crc", age_ns=DAY)
    root.write(".metadata.crc", age_ns=DAY)
    assert set(reasons(root.sweep(POLICY))) == {"state/0/0/10.zip", "offsets/.3.crc"}
