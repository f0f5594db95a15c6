"""What a sweep takes of Flink's checkpoints, and all that it leaves alone."""

from __future__ import annotations

import pytest

from holdfast.checkpoints.formats.own import OwnFile, OwnMetadata, own_metadata
from holdfast.checkpoints.manifests import Trouble
from holdfast.checkpoints.reachability import (
    Listed,
    Phase,
    Plan,
    Policy,
    Reason,
    census,
    drop,
    examined,
    missing,
    sweep,
    up_to,
)
from holdfast.checkpoints.sweeps.plan_format import SWEEP
from holdfast.checkpoints.sweeps.planning import Question, RootListing, stored
from holdfast.checkpoints.sweeps.revalidation import confirmed
from holdfast.errors import ConfigurationError, PlanOutdatedError
from tests.support.checkpoints import samples
from tests.support.checkpoints.roots import DAY, HOUR, SECOND, START, Root, reasons, uuid
from tests.support.flink import metadata as flink_metadata

JOB = "a" * 32
OTHER = "b" * 32
SEGMENTS = f"shared/job_{JOB}_op_{'c' * 32}_0_4"
POLICY = Policy(grace_ns=HOUR, abandoned_ns=DAY)
SAMPLES = [name for name in samples.names() if name.startswith("flink-") and "versions" not in name]


def uri(name: str) -> bytes:
    return f"file:/some/other/mount/{name}".encode()


@pytest.fixture
def root() -> Root:
    """A job with two complete checkpoints, an hour apart, the newer two days ago."""
    root = Root()
    shared = [f"{JOB}/shared/{uuid(number)}" for number in range(4)]
    for number, name in enumerate(shared):
        root.write(name, age_ns=3 * DAY + number)
    root.write(f"{JOB}/chk-4/{uuid(40)}", age_ns=2 * DAY + HOUR)
    root.write(f"{JOB}/chk-5/{uuid(50)}", age_ns=2 * DAY)
    metadata = flink_metadata.with_files([uri(shared[0]), uri(shared[1])], 4, [uuid(40).encode()])
    root.write(f"{JOB}/chk-4/_metadata", metadata, age_ns=2 * DAY + HOUR)
    metadata = flink_metadata.with_files([uri(shared[1]), uri(shared[2])], 5, [uuid(50).encode()])
    root.write(f"{JOB}/chk-5/_metadata", metadata, age_ns=2 * DAY)
    root.delete([shared[3].encode()])
    return root


def test_nothing_of_complete_checkpoints_is_touched(root: Root) -> None:
    plan = root.sweep(POLICY)
    assert plan.entries == ()
    assert plan.kept == ()
    assert plan.retained == root.files.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_of_a_real_flinks_checkpoints_is_touched_but_planted_orphans_are(name: str) -> None:
    root = Root.of_sample(samples.sample(name))
    before = root.sweep(POLICY)
    assert {entry.reason for entry in before.entries} <= {Reason.EMPTY_DIRECTORY}
    assert before.kept == ()
    jobs = {path.split(b"/chk-")[0] for path in root.files if b"/chk-" in path}
    planted = set()
    for job in jobs:
        planted.add(root.write(b"%s/shared/%s" % (job, uuid(1).encode()), age_ns=2 * DAY))
        planted.add(root.write(b"%s/chk-1/%s" % (job, uuid(2).encode()), age_ns=2 * DAY))
        root.write(b"%s/taskowned/%s" % (job, uuid(3).encode()), age_ns=2 * DAY)
        root.write(b"%s/chk-1/core.dump" % job, age_ns=2 * DAY)
    after = root.sweep(POLICY)
    assert {entry.name for entry in after.entries if entry.phase is not Phase.DIRECTORY} == planted


# --- shared files -----------------------------------------------------------------------------------------------------


def test_a_shared_file_nobody_refers_to_goes_once_a_later_checkpoint_is_complete(root: Root) -> None:
    orphan = root.write(f"{JOB}/shared/{uuid(9)}", age_ns=2 * DAY + 1)
    assert reasons(root.sweep(POLICY)) == {orphan.decode(): Reason.UNREFERENCED}


def test_a_shared_file_that_a_checkpoint_under_way_may_need_is_left_alone_until_it_is_abandoned(root: Root) -> None:
    newer = root.write(f"{JOB}/shared/{uuid(9)}", age_ns=2 * HOUR)
    assert root.sweep(POLICY).entries == ()
    root.now_ns += DAY
    assert reasons(root.sweep(POLICY)) == {newer.decode(): Reason.UNREFERENCED}


def test_nothing_younger_than_the_grace_age_goes(root: Root) -> None:
    root.write(f"{JOB}/shared/{uuid(9)}", age_ns=HOUR - 1)
    root.write(f"{JOB}/chk-1/{uuid(10)}", age_ns=HOUR - 1)
    root.write(f"{JOB}/shared/{uuid(11)}", age_ns=-DAY)  # from a clock that goes ahead
    metadata = flink_metadata.with_files([], 6)
    root.write(f"{JOB}/chk-6/_metadata", metadata)
    assert root.sweep(POLICY).entries == ()
    root.now_ns += 1
    assert len(root.sweep(POLICY).entries) == 2


def test_what_another_job_has_claimed_stays(root: Root) -> None:
    claimed = f"{JOB}/shared/{uuid(0)}"
    root.write(f"{OTHER}/chk-6/_metadata", flink_metadata.with_files([uri(claimed)], 6), age_ns=HOUR)
    root.delete([name for name in root.files if name.startswith(f"{JOB}/chk-".encode())])
    root.now_ns += DAY
    assert reasons(root.sweep(POLICY)) == {f"{JOB}/shared/{uuid(number)}": Reason.UNREFERENCED for number in (1, 2)}


def test_a_relative_name_keeps_a_file_that_is_not_beside_its_metadata(root: Root) -> None:
    """FLINK-39964: after a CLAIM restore from a native savepoint."""
    elsewhere = root.write(f"{OTHER}/chk-2/{uuid(77)}", age_ns=3 * DAY)
    root.write(f"{JOB}/chk-6/_metadata", flink_metadata.with_files([], 6, [uuid(77).encode()]))
    plan = root.sweep(POLICY)
    assert plan.entries == ()
    assert elsewhere in plan.retained


def test_segment_files_stay_while_anything_happens_in_their_directory(root: Root) -> None:
    segment = root.write(f"{JOB}/{SEGMENTS}/{uuid(9)}", age_ns=3 * DAY)
    neighbour = root.write(f"{JOB}/{SEGMENTS}/{uuid(10)}", age_ns=2 * HOUR)
    assert root.sweep(POLICY).entries == ()
    root.now_ns += DAY
    assert reasons(root.sweep(POLICY)) == dict.fromkeys([segment.decode(), neighbour.decode()], Reason.UNREFERENCED)


def test_a_referenced_directory_of_file_merging_keeps_all_that_is_in_it(root: Root) -> None:
    root.write(f"{JOB}/{SEGMENTS}/{uuid(9)}", age_ns=3 * DAY)
    state = flink_metadata.operator_state(flink_metadata.EMPTY_SEGMENT, (b"file:/x/taskowned/y", uri(f"{JOB}/{SEGMENTS}")))
    root.write(
        f"{JOB}/chk-6/_metadata",
        flink_metadata.metadata([flink_metadata.operator([flink_metadata.subtask(operator=state)])]),
    )
    assert root.sweep(POLICY).entries == ()


# --- exclusive files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [f"{JOB}/chk-3/{uuid(9)}", f"{JOB}/exclusive/chk-3-{uuid(9)}", f"{JOB}/exclusive/chk-3-0.sst"]
)
def test_a_late_file_of_an_expired_checkpoint_is_found_by_its_id(root: Root, name: str) -> None:
    root.write(name, age_ns=2 * DAY + 1)
    plan = root.sweep(POLICY)
    assert reasons(plan) == {name: Reason.EXPIRED_CHECKPOINT}
    assert plan.entries[0].about == f"checkpoint 3 of {JOB}"


def test_a_checkpoint_above_the_newest_complete_one_may_be_under_way(root: Root) -> None:
    name = root.write(f"{JOB}/chk-6/{uuid(9)}", age_ns=3 * DAY - 1)
    root.now_ns -= 2 * DAY
    assert root.sweep(POLICY).entries == ()
    root.now_ns += 2 * DAY
    plan = root.sweep(POLICY)
    assert reasons(plan) == {name.decode(): Reason.FAILED_ATTEMPT}
    assert "never completed" in plan.entries[0].about


def test_a_file_beside_complete_metadata_that_does_not_name_it_is_of_a_failed_attempt(root: Root) -> None:
    name = root.write(f"{JOB}/chk-5/{uuid(9)}", age_ns=2 * HOUR)
    assert reasons(root.sweep(POLICY)) == {name.decode(): Reason.FAILED_ATTEMPT}


def test_unfinished_metadata_is_temporary(root: Root) -> None:
    name = root.write(f"{JOB}/chk-6/._metadata.inprogress.{uuid(9)}", age_ns=2 * HOUR)
    assert reasons(root.sweep(POLICY)) == {name.decode(): Reason.TEMPORARY}


def test_holdfasts_own_layout(root: Root) -> None:
    job = f"plain/{OTHER}"
    digest = "0123456789abcdef" * 2
    files = (OwnFile(f"exclusive/chk-8-{uuid(1)}", 1, ""), OwnFile(f"shared/{digest}", 1, digest))
    root.write(f"{job}/chk-8/_metadata", own_metadata(OwnMetadata(8, files)), age_ns=2 * HOUR)
    for file in files:
        root.write(f"{job}/{file.name}", age_ns=3 * HOUR)
    late = root.write(f"{job}/exclusive/chk-7-{uuid(2)}", age_ns=3 * HOUR)
    orphan = root.write(f"{job}/shared/{digest[::-1]}", age_ns=3 * HOUR)
    assert reasons(root.sweep(POLICY)) == {late.decode(): Reason.EXPIRED_CHECKPOINT, orphan.decode(): Reason.UNREFERENCED}


# --- what is never touched --------------------------------------------------------------------------------------------


def test_task_owned_state_savepoints_unknown_names_and_foreign_directories_stay_for_ever(root: Root) -> None:
    kept = [
        f"{JOB}/taskowned/{uuid(9)}",
        f"{JOB}/dstl/{uuid(9)}",
        f"{JOB}/chk-1/notes.txt",
        f"{JOB}/chk-1/{uuid(9)}.bak",
        f"{JOB}/shared/model.bin",
        f"savepoint-1f2e3d-0123456789ab/{uuid(9)}",
        f"savepoint-1f2e3d-0123456789ab/shared/{uuid(9)}",
        f"photos/shared/{uuid(9)}",
        f"training/chk-100/{uuid(9)}",
        f"shared/{uuid(9)}",
        "a",
    ]
    for name in kept:
        root.write(name, age_ns=365 * DAY)
    root.write(b"\xff\xfe/chk-3/\xff", age_ns=365 * DAY)
    assert root.sweep(POLICY).entries == ()


def test_any_directory_with_a_complete_checkpoint_is_a_jobs(root: Root) -> None:
    """With create-subdir=false there is no job id in the path."""
    root.write("chk-9/_metadata", flink_metadata.with_files([], 9), age_ns=HOUR)
    late = root.write(f"chk-8/{uuid(9)}", age_ns=2 * HOUR)
    assert reasons(root.sweep(POLICY)) == {late.decode(): Reason.EXPIRED_CHECKPOINT}


def test_savepoints_and_copies_of_checkpoints_keep_what_they_refer_to(root: Root) -> None:
    for number, name in enumerate(("savepoint-1f2e3d-0123456789ab/_metadata", "kept for the audit/_metadata")):
        root.write(f"{JOB}/shared/{uuid(90 + number)}", age_ns=3 * DAY)
        root.write(name, flink_metadata.with_files([uri(uuid(90 + number))]), age_ns=2 * DAY)
    assert root.sweep(POLICY).entries == ()


# --- what can't be read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "trouble"),
    [
        (f"{OTHER}/chk-3/_metadata", flink_metadata.metadata([], version=7), Trouble.UNKNOWN_VERSION),
        (f"{OTHER}/chk-3/_metadata", b"", Trouble.TRUNCATED),
        (f"{OTHER}/chk-3/_metadata", b"garbage", Trouble.FOREIGN),
        ("savepoint-1f2e3d-0123456789ab/_metadata", b"garbage", Trouble.FOREIGN),
        ("a copy/_metadata", flink_metadata.with_files([])[:-5], Trouble.TRUNCATED),
    ],
)
def test_one_unreadable_metadata_stops_the_judgement_of_all(root: Root, name: str, content: bytes, trouble: Trouble) -> None:
    root.write(f"{JOB}/shared/{uuid(9)}", age_ns=2 * DAY + 1)
    root.write(f"{JOB}/chk-3/{uuid(10)}", age_ns=2 * DAY + 1)
    root.write(name, content)
    plan = root.sweep(POLICY)
    assert plan.entries == ()
    assert [(kept.scope.decode(), kept.trouble) for kept in plan.kept] == [(name, trouble)]
    assert plan.retained >= root.files.keys()


def test_a_parquet_files_metadata_is_nobodys(root: Root) -> None:
    orphan = root.write(f"{JOB}/shared/{uuid(9)}", age_ns=2 * DAY + 1)
    root.write("warehouse/flights/_metadata", b"PAR1....PAR1", age_ns=DAY)
    plan = root.sweep(POLICY)
    assert reasons(plan) == {orphan.decode(): Reason.UNREFERENCED}
    assert plan.kept == ()


def test_metadata_that_went_after_the_listing_stops_the_judgement(root: Root) -> None:
    """Another checkpoint has taken its place meanwhile; what that one shares is not known."""
    root.write(f"{JOB}/shared/{uuid(9)}", age_ns=2 * DAY + 1)
    examination = sweep(root.listing(), POLICY, root.now_ns)
    root.delete([f"{JOB}/chk-4/_metadata".encode()])
    plan = examined(examination, root.open)
    assert plan.entries == ()
    assert plan.kept[0].trouble is Trouble.MISSING


# --- directories ------------------------------------------------------------------------------------------------------


def test_directories_that_are_or_become_empty_go_last(root: Root) -> None:
    late = root.write(f"{JOB}/chk-3/{uuid(9)}", age_ns=2 * DAY + 1)
    emptied = root.mkdir(f"{JOB}/chk-3", age_ns=2 * DAY + 1)
    empty = root.mkdir(f"{JOB}/chk-2", age_ns=2 * DAY + 1)
    for name in ("chk-4", "chk-5", "shared", "taskowned", "chk-1", SEGMENTS):
        root.mkdir(f"{JOB}/{name}", age_ns=5 * DAY)
    root.write(f"{JOB}/chk-1/notes.txt", age_ns=5 * DAY)
    root.mkdir(JOB, age_ns=5 * DAY)
    plan = root.sweep(POLICY)
    assert [entry.name for entry in plan.entries] == [late, f"{JOB}/{SEGMENTS}".encode(), empty, emptied]
    assert [entry.reason for entry in plan.entries[1:]] == [Reason.EMPTY_DIRECTORY] * 3


def test_an_empty_directory_of_a_checkpoint_under_way_stays(root: Root) -> None:
    root.mkdir(f"{JOB}/chk-6", age_ns=2 * HOUR)
    root.mkdir(f"{JOB}/{SEGMENTS}", age_ns=2 * HOUR)
    assert root.sweep(POLICY).entries == ()


# --- drop -------------------------------------------------------------------------------------------------------------


def test_a_dropped_checkpoint_loses_its_metadata_first_then_all_that_only_it_reaches(root: Root) -> None:
    root.mkdir(f"{JOB}/chk-4")
    plan = root.carry_out(drop(root.listing(), [f"{JOB}/chk-4".encode()], root.now_ns))
    assert [entry.name.decode() for entry in plan.entries] == [
        f"{JOB}/chk-4/_metadata",
        f"{JOB}/chk-4/{uuid(40)}",
        f"{JOB}/chk-4",
    ]
    assert plan.entries[0].phase is Phase.MANIFEST
    assert plan.entries[0].reason is Reason.DROPPED
    root.execute(plan)
    assert reasons(root.sweep(POLICY)) == {f"{JOB}/shared/{uuid(0)}": Reason.UNREFERENCED}


def test_what_another_checkpoint_reaches_survives_the_drop(root: Root) -> None:
    root.write(f"{OTHER}/chk-1/_metadata", flink_metadata.with_files([], 1, [uuid(40).encode()]))
    plan = root.carry_out(drop(root.listing(), [f"{JOB}/chk-4".encode()], root.now_ns))
    assert [entry.name.decode() for entry in plan.entries] == [f"{JOB}/chk-4/_metadata"]


def test_up_to_a_checkpoint_means_all_of_its_job_at_or_below_it(root: Root) -> None:
    root.write(f"{JOB}/chk-2/{uuid(9)}")
    root.write(f"{JOB}/exclusive/chk-3-{uuid(9)}")
    root.write(f"{OTHER}/chk-1/_metadata")
    names = up_to(root.listing(), f"{JOB}/chk-4".encode())
    assert names == {f"{JOB}/chk-{number}".encode() for number in (2, 3, 4)}
    plan = root.carry_out(drop(root.listing(), names, root.now_ns))
    assert plan.kept[0].scope == f"{OTHER}/chk-1/_metadata".encode()
    assert plan.entries == (), "not while a metadata can't be read"
    assert up_to(root.listing(), b"somewhere") == frozenset()


# --- plans ------------------------------------------------------------------------------------------------------------


def test_staged_uploads_go_after_the_grace_age(root: Root) -> None:
    staged = root.write(f".holdfast/{'d' * 32}", age_ns=2 * HOUR)
    root.write(f".holdfast/{'e' * 32}", age_ns=1)
    root.write(".holdfast/format", age_ns=DAY)
    assert reasons(root.sweep(POLICY)) == {staged.decode(): Reason.STAGED_UPLOAD}


def test_a_lease_stays_until_its_period_ends_whatever_the_grace_age(root: Root) -> None:
    until = root.now_ns // SECOND + 60
    lease = root.write(f".holdfast/sweep-{until}", age_ns=2 * HOUR)
    assert reasons(root.sweep(POLICY)) == {}
    root.now_ns = until * SECOND
    assert reasons(root.sweep(POLICY)) == {lease.decode(): Reason.STAGED_UPLOAD}


def test_a_plan_says_what_why_how_large_and_how_old(root: Root) -> None:
    root.write(f"{JOB}/shared/{uuid(9)}", b"12345", age_ns=2 * DAY + 1)
    plan = root.sweep(POLICY)
    (entry,) = plan.entries
    assert (entry.size_bytes, entry.age_ns, entry.about) == (5, 2 * DAY + 1, f"shared of {JOB}")
    assert entry.reason is Reason.UNREFERENCED


def test_only_what_a_later_plan_has_too_is_confirmed(root: Root) -> None:
    names = [root.write(f"{JOB}/shared/{uuid(number)}", age_ns=2 * DAY + 1) for number in (7, 8, 9)]
    survey = RootListing(root.now_ns, root.listing(), {})
    plan = stored(root.sweep(POLICY), survey, Question(SWEEP, "", POLICY), plan_id="1", zone="checkpoints", store="")
    root.write(names[0], b"written again", age_ns=2 * DAY)
    root.write(f"{JOB}/chk-6/_metadata", flink_metadata.with_files([names[1]], 6))
    with pytest.raises(PlanOutdatedError, match="2 of 3 would not go any more"):
        confirmed(plan, root.sweep(POLICY), root.files, {})
    root.delete(names[:2])
    assert [item.name.encode() for item in confirmed(plan, root.sweep(POLICY), root.files, {})] == [names[2]]


def test_an_examination_asks_for_everything_at_once(root: Root) -> None:
    examination = sweep(root.listing(), POLICY, root.now_ns)
    assert {wanted.name.decode() for wanted in examination.wanted} == {f"{JOB}/chk-{number}/_metadata" for number in (4, 5)}
    examination.supply({wanted.name: missing(wanted.name) for wanted in examination.wanted})
    assert examination.wanted == ()
    assert len(examination.result.kept) == 2


def test_an_empty_root_wants_nothing() -> None:
    examination = sweep([], POLICY, START)
    assert examination.wanted == ()
    assert examination.result == Plan()


@pytest.mark.parametrize(("grace", "abandoned", "batches"), [(-1, 0, 0), (5, 4, 0), (0, 0, -1)])
def test_a_policy_that_can_not_be_is_refused(grace: int, abandoned: int, batches: int) -> None:
    with pytest.raises(ConfigurationError):
        Policy(grace, abandoned, batches)


def test_names_need_not_be_text() -> None:
    listing = [Listed(b"\xff" * 5, 1, 0), Listed(b"\xff/chk-1", 0, 0, is_directory=True), Listed(b"", 1, 0)]
    assert sweep(listing, POLICY, START).result.entries == ()


def test_a_census_has_checkpoints_in_order_savepoints_and_what_is_shared(root: Root) -> None:
    root.write(f"{JOB}/chk-10/{uuid(1)}", b"123")
    root.write(f"{JOB}/exclusive/chk-9-state", b"12")
    root.write(f"{JOB}/taskowned/{uuid(1)}")
    root.write("savepoint-aaaaaa-bbbbbbbbbbbb/_metadata")
    root.write("notes")
    found = [(each.name.decode(), each.what, each.is_complete, each.files) for each in census(root.listing())]
    assert found == [
        ("savepoint-aaaaaa-bbbbbbbbbbbb", "savepoint", True, 1),
        (f"{JOB}/shared", "shared", True, 3),
        (f"{JOB}/taskowned", "shared", True, 1),
        (f"{JOB}/chk-4", "checkpoint", True, 2),
        (f"{JOB}/chk-5", "checkpoint", True, 2),
        (f"{JOB}/chk-9", "checkpoint", False, 1),
        (f"{JOB}/chk-10", "checkpoint", False, 1),
    ]
