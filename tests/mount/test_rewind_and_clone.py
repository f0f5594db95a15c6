"""``holdfast checkpoint rewind`` and ``clone`` on a running daemon: what is in the store then."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cli.exit_status import ExitStatus, exit_status
from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import (
    CloneProgress,
    CloneRequest,
    PlanInfo,
    RewindRequest,
    SweepRequest,
    UndoProgress,
    UndoRequest,
)
from tests.conftest import NodeFactory
from tests.mount.test_command import holdfast
from tests.mount.test_verify import QUERY, lay, lay_listed, newest, verified
from tests.support.checkpoints.checkpoint_roots import DAY_SECONDS, age, below
from tests.support.daemons.node import Node
from tests.support.stores.s3 import Versitygw

SAMPLE = "spark-rocksdb-1-changelog"
TO = 6
LATER = {
    "commits/7",
    "commits/8",
    "offsets/7",
    "offsets/8",
    "state/0/0/8.changelog",
    "state/0/0/9.changelog",
    "state/0/0/9.zip",
}
TARGET = "copies/query"


@pytest.fixture
def location(node: Node, remote_files: Path) -> Path:
    lay(node, SAMPLE, QUERY)
    return remote_files / QUERY


def files(directory: Path) -> set[str]:
    return {name for name in below(directory) if (directory / name).is_file()}


def plan_of(client: ControlClient, node: Node, to: int = TO) -> PlanInfo:
    return client.plan_rewind(RewindRequest(path=str(node.checkpoints / QUERY), to=to, idle_seconds=0))


def rewound(client: ControlClient, node: Node, to: int = TO) -> str:
    """Take the query back; return the id of the plan."""
    plan = plan_of(client, node, to)
    *_, last = client.execute(plan.id)
    assert last.finished
    return plan.id


def undone(client: ControlClient, node: Node) -> UndoProgress:
    *_, last = client.undo_rewind(UndoRequest(path=str(node.checkpoints / QUERY), idle_seconds=0))
    assert last.finished
    return last


def contents(location: Path) -> dict[str, bytes]:
    """What is in a location, without what rewinds keep there."""
    return {name: (location / name).read_bytes() for name in files(location) if not name.startswith("_rewound/")}


def copy(client: ControlClient, node: Node, batch: int | None = None, *, keep_id: bool = False) -> None:
    *_, last = client.clone(
        CloneRequest(path=str(node.checkpoints / QUERY), to=str(node.checkpoints / TARGET), batch=batch, keep_id=keep_id)
    )
    assert last.finished


def test_a_rewind_sets_aside_what_later_batches_have_left_and_nothing_else(node: Node, location: Path) -> None:
    before = files(location)
    contents = {name: (location / name).read_bytes() for name in LATER}
    assert os.listdir(node.checkpoints / QUERY / "commits")  # the node has seen them
    with node.client() as client:
        plan = plan_of(client, node)
        assert {str(Path(item.path).relative_to(node.checkpoints / QUERY)) for item in plan.items} == LATER
        assert files(location) == before
        *_, last = client.execute(plan.id)
        assert (last.finished, last.removed) == (True, len(LATER))
        assert newest(verified(client, node.checkpoints / QUERY)).path.endswith(f"commits/{TO}")
    aside = location / "_rewound" / plan.id
    assert files(location) - {f"_rewound/{plan.id}/{name}" for name in (*LATER, "rewind.json")} == before - LATER
    assert {name: (aside / name).read_bytes() for name in LATER} == contents
    assert sorted(os.listdir(node.checkpoints / QUERY / "commits")) == ["4", "5", "6"]
    (node.checkpoints / QUERY / "commits/7").write_bytes(b"v1\n{}")  # a write-once name is free again
    assert (location / "commits/7").read_bytes() == b"v1\n{}"


def test_what_was_set_aside_goes_with_a_sweep_when_it_is_old_enough(node: Node, location: Path) -> None:
    with node.client() as client:
        plan = plan_of(client, node)
        *_, _ = client.execute(plan.id)
        kept = client.plan_sweep(SweepRequest(path=str(node.checkpoints)))
        assert not [item for item in kept.items if "_rewound" in item.path]
        swept = client.plan_sweep(SweepRequest(path=str(node.checkpoints), grace_seconds=0, abandoned_seconds=0))
        *_, _ = client.execute(swept.id)
    assert swept.by_reason["set_aside"] == len(LATER) + 1
    assert not [name for name in files(location) if name.startswith("_rewound")]


def test_an_undone_rewind_leaves_the_query_as_it_was(node: Node, location: Path) -> None:
    before = contents(location)
    with node.client() as client:
        plan = rewound(client, node)
        assert not (node.checkpoints / QUERY / "commits/8").exists()  # the kernel knows that it is not there
        last = undone(client, node)
        assert (last.plan, last.done, last.bytes_done) == (plan, len(LATER), sum(len(before[name]) for name in LATER))
        found = verified(client, node.checkpoints / QUERY, deep=True)
        assert newest(found).path.endswith("commits/8")
        assert newest(found).restorable
        assert found.without_digest == 0, "what comes back keeps its digests"
        assert (node.checkpoints / QUERY / "commits/8").read_bytes() == before["commits/8"]
        assert sorted(os.listdir(node.checkpoints / QUERY / "offsets"))[-2:] == ["7", "8"]
        assert contents(location) == before
        with pytest.raises(RefusedError, match="no rewind of this query can be undone"):
            undone(client, node)


@pytest.mark.parametrize("within_a_second", [False, True])
def test_rewinds_are_undone_one_after_the_other_the_latest_first(
    node: Node, location: Path, *, within_a_second: bool
) -> None:
    before = contents(location)
    with node.client() as client:
        plans = [rewound(client, node, 7), rewound(client, node, 6)]
        for note in location.glob("_rewound/*/rewind.json") if within_a_second else ():
            note.write_text(json.dumps(json.loads(note.read_bytes()) | {"made_ns": 10**18}))  # by the clock of S3
        after_the_first = undone(client, node)
        assert newest(verified(client, node.checkpoints / QUERY)).path.endswith("commits/7")
        assert [after_the_first.plan, undone(client, node).plan] == plans[::-1]
    assert contents(location) == before


@pytest.mark.parametrize("planned", [(7, 6), (6, 7)])
def test_a_plan_that_another_rewind_has_taken_something_from_is_made_anew_and_both_are_undone(
    node: Node, location: Path, planned: tuple[int, int]
) -> None:
    before = contents(location)
    with node.client() as client:
        plans = {to: plan_of(client, node, to).id for to in planned}
        *_, _ = client.execute(plans[7])
        after_the_first = files(location)
        with pytest.raises(RefusedError, match=f"has gone since the plan {plans[6]} was made"):
            *_, _ = client.execute(plans[6])
        assert files(location) == after_the_first
        again = rewound(client, node, 6)
        assert [undone(client, node).plan, undone(client, node).plan] == [again, plans[7]]
    assert contents(location) == before


@contextmanager
def about_to_create(path: Path) -> Iterator[None]:
    """This thread has a temporary file for ``path`` open, and has been told that there is no such name yet."""
    with (path.parent / f".{path.name}.{uuid.uuid4()}.TID1.tmp").open("wb"):
        assert not path.exists()
        yield


@pytest.mark.promise("clones-seen")
def test_what_a_rewind_sets_aside_and_an_undo_puts_back_is_seen_at_once_by_who_has_just_looked(
    node: Node, location: Path
) -> None:
    query = node.checkpoints / QUERY
    with node.client() as client:
        with about_to_create(query / "_rewound"):
            plan = rewound(client, node)
            assert (query / "_rewound" / plan / "commits/8").read_bytes()
        with about_to_create(query / "commits/8"):
            undone(client, node)
            assert (query / "commits/8").read_bytes() == (location / "commits/8").read_bytes()


@pytest.mark.promise("clones-seen")
def test_a_copy_is_seen_at_once_by_who_has_just_looked(node: Node, location: Path) -> None:
    target = node.checkpoints / TARGET
    target.mkdir(parents=True)
    with node.client() as client, about_to_create(target / "offsets"), about_to_create(target / "metadata"):
        copy(client, node)
        assert sorted(os.listdir(target / "offsets")) == sorted(os.listdir(location / "offsets"))
        assert (target / "metadata").exists()


def test_a_query_that_ran_since_the_rewind_keeps_its_new_history(node: Node, location: Path) -> None:
    with node.client() as client:
        rewound(client, node)
        for name in ("offsets/7", "offsets/9"):  # the first was set aside too, and is another now
            (location / name).write_bytes(b"v1\n{}\n")
            before = contents(location)
            with pytest.raises(RefusedError, match=rf"{name} was written since the rewind"):
                undone(client, node)
            assert contents(location) == before
            (location / name).unlink()
        with pytest.raises(RefusedError, match="seems to run"):
            *_, _ = client.undo_rewind(UndoRequest(path=str(node.checkpoints / QUERY)))


def test_an_undo_that_was_cut_off_is_completed_by_the_same_command(node: Node, location: Path) -> None:
    before = contents(location)
    with node.client() as client:
        aside = location / "_rewound" / rewound(client, node)
        for name in ("offsets/7", "commits/7", "offsets/8"):  # as a killed daemon leaves it
            shutil.copy2(aside / name, location / name)
        undone(client, node)
    assert contents(location) == before


def test_what_is_not_whole_any_more_is_not_put_back(node: Node, location: Path) -> None:
    with node.client() as client:
        aside = location / "_rewound" / rewound(client, node)
        (aside / "commits/8").unlink()  # as a sweep leaves it that was cut off
        before = contents(location)
        with pytest.raises(RefusedError, match=f"{len(LATER) - 1} of {len(LATER)} files"):
            undone(client, node)
    assert contents(location) == before


def test_a_sweep_leaves_what_an_undo_would_need(node: Node, location: Path) -> None:
    before = contents(location)
    with node.client() as client:
        rewound(client, node)
        for file in location.rglob("SSTs/*"):
            age(file, 9)
        swept = client.plan_sweep(SweepRequest(path=str(node.checkpoints), grace_seconds=DAY_SECONDS))
        *_, _ = client.execute(swept.id)
        undone(client, node)
        assert newest(verified(client, node.checkpoints / QUERY)).restorable
    assert contents(location) == before


def test_a_query_that_has_just_written_is_not_taken_back(node: Node, location: Path) -> None:
    assert location.exists()
    with node.client() as client, pytest.raises(RefusedError, match="seems to run") as refused:
        client.plan_rewind(RewindRequest(path=str(node.checkpoints / QUERY), to=TO))
    assert exit_status(refused.value) is ExitStatus.BUSY


def test_a_batch_that_ran_since_the_plan_was_made_makes_it_worthless(node: Node, location: Path) -> None:
    with node.client() as client:
        plan = plan_of(client, node)
        (location / "offsets/9").write_bytes(b"v1\n{}\n")
        before = files(location)
        with pytest.raises(RefusedError, match="offsets/9 was written since"):
            *_, _ = client.execute(plan.id)
    assert files(location) == before


def test_there_is_no_way_to_a_batch_that_can_not_be_restored(node: Node, location: Path) -> None:
    (location / "state/0/0/7.changelog").unlink()
    with node.client() as client:
        with pytest.raises(RefusedError, match=r"7\.changelog: it is not there"):
            plan_of(client, node)
        with pytest.raises(RefusedError, match="no batch 77"):
            plan_of(client, node, 77)
        with pytest.raises(RefusedError):
            client.plan_rewind(RewindRequest(path=str(node.checkpoints), to=TO, idle_seconds=0))


def test_a_rewind_that_was_cut_off_is_completed_by_its_plan(node: Node, location: Path) -> None:
    with node.client() as client:
        plan = plan_of(client, node)
    aside = location / "_rewound" / plan.id
    aside.mkdir(parents=True)
    for name in ("state/0/0/9.zip", "commits/8"):  # as a killed daemon leaves it: copied, and partly removed
        (aside / name).parent.mkdir(parents=True, exist_ok=True)
        (location / name).rename(aside / name)
    with node.client() as client:
        *_, last = client.execute(plan.id)
        assert (last.finished, last.gone) == (True, 2)
        assert newest(verified(client, node.checkpoints / QUERY)).path.endswith(f"commits/{TO}")
    assert {name for name in files(aside) if name != "rewind.json"} == LATER


def test_a_copy_has_all_that_a_restart_reads_and_an_id_of_its_own(node: Node, location: Path, remote_files: Path) -> None:
    assert not (node.checkpoints / TARGET).exists()  # the kernel knows that there is none
    with node.client() as client:
        copy(client, node)
        found = verified(client, node.checkpoints / TARGET, deep=True)
        assert newest(found).restorable
        assert found.without_digest == 0, "copies keep their digests"
    assert files(remote_files / TARGET) == {name for name in files(location) if not name.endswith(".tmp")}
    ids = [json.loads((path / "metadata").read_bytes())["id"] for path in (location, node.checkpoints / TARGET)]
    assert ids[0] != ids[1]


def test_a_copy_names_its_own_schemas_where_operators_name_them_by_absolute_paths(
    node: Node, location: Path, remote_files: Path
) -> None:
    """As joins of state format 3 and transformWithState do."""
    schema = "state/0/_stateSchema/default/0_11111111-2222-3333-4444-555555555555"
    metadata = location / "state/0/_metadata/v2/0"
    (location / schema).parent.mkdir(parents=True)
    (location / schema).write_bytes(b"\0\x02v3")
    metadata.parent.mkdir(exist_ok=True)

    def name_schema(path: Path | str) -> None:
        store = {"storeName": "default", "numPartitions": 1, "stateSchemaFilePaths": [f"file:{path}"]}
        metadata.write_text("v2\n" + json.dumps({"operatorInfo": {"operatorId": 0}, "stateStoreInfo": [store]}))

    with node.client() as client:
        name_schema(f"/mnt/elsewhere/{QUERY}s/{schema}")
        with pytest.raises(RefusedError, match=r"/mnt/elsewhere/\S+, which is not in this checkpoint"):
            copy(client, node)
        assert not (remote_files / TARGET).exists()
        name_schema(node.checkpoints / QUERY / schema)
        copy(client, node)
        assert newest(verified(client, node.checkpoints / TARGET)).restorable
    head, _, text = (remote_files / TARGET / "state/0/_metadata/v2/0").read_text().partition("\n")
    copied = json.loads(text)
    assert (head, copied["operatorInfo"]) == ("v2", {"operatorId": 0})
    assert copied["stateStoreInfo"][0]["stateSchemaFilePaths"] == [f"file:{node.checkpoints / TARGET / schema}"]
    assert (remote_files / TARGET / schema).read_bytes() == b"\0\x02v3"


def test_a_copy_of_an_earlier_batch_goes_on_from_there(node: Node, location: Path, remote_files: Path) -> None:
    with node.client() as client:
        copy(client, node, TO, keep_id=True)
        assert newest(verified(client, node.checkpoints / TARGET)).path.endswith(f"commits/{TO}")
    assert not files(remote_files / TARGET) & LATER
    assert (remote_files / TARGET / "metadata").read_bytes() == (location / "metadata").read_bytes()


def test_a_copy_overwrites_nothing(node: Node, location: Path, remote_files: Path) -> None:
    (remote_files / TARGET).mkdir(parents=True)
    (remote_files / TARGET / "mine").write_bytes(b"mine")
    with node.client() as client:
        with pytest.raises(RefusedError, match="there is something at"):
            copy(client, node)
        (remote_files / TARGET / "mine").unlink()
        copy(client, node)
        with pytest.raises(RefusedError, match="there is a checkpoint at"):
            copy(client, node)
        with pytest.raises(RefusedError, match="within its original"):
            *_, _ = client.clone(CloneRequest(path=str(node.checkpoints / QUERY), to=str(node.checkpoints / QUERY / "copy")))
    assert location.exists()


def test_a_copy_that_was_cut_off_is_no_checkpoint_and_the_same_again_completes_it(
    node: Node, location: Path, remote_files: Path
) -> None:
    with node.client() as client:
        copy(client, node)
        whole = {name: (remote_files / TARGET / name).read_bytes() for name in files(remote_files / TARGET)}
        note = {"source": QUERY, "batch": 8, "new_id": json.loads(whole["metadata"])["id"]}
        (remote_files / TARGET / "_cloning.json").write_text(json.dumps(note))  # as a killed daemon leaves it
        for name in ("metadata", "offsets/7", "state/0/0/9.zip"):
            (remote_files / TARGET / name).unlink()
        with pytest.raises(RefusedError, match="copy of something else"):
            copy(client, node, TO)
        copy(client, node)
    assert {name: (remote_files / TARGET / name).read_bytes() for name in files(remote_files / TARGET)} == whole
    assert location.exists()


def test_an_s3_store_copies_by_itself(make_node: NodeFactory, s3_versitygw: Versitygw) -> None:
    place = s3_versitygw.below("clone")
    node = make_node(checkpoints=place.url)
    node.environment.update(place.environment)
    node.start()
    lay(node, SAMPLE, QUERY)
    with node.client() as client:
        place.clear_log()
        *_, last = client.clone(CloneRequest(path=str(node.checkpoints / QUERY), to=str(node.checkpoints / TARGET)))
        copies = place.requests()["CopyObject"]
        assert newest(verified(client, node.checkpoints / TARGET, deep=True)).restorable
    assert copies == last.total
    copied = place.directory / TARGET
    assert last.bytes_done == sum((copied / name).stat().st_size for name in files(copied) - {"metadata"})


def test_what_flink_keeps_is_copied_where_its_paths_are_relative_and_else_it_says_why_not(
    node: Node, remote_files: Path
) -> None:
    lay_listed(remote_files, "flink-incremental")
    (job,) = (remote_files / "checkpoints").iterdir()
    checkpoint = max(job.glob("chk-*"))
    savepoint, *_ = (remote_files / "savepoints").iterdir()

    def copy_of(path: Path, batch: int | None = None) -> CloneProgress:
        source = node.checkpoints / path.relative_to(remote_files)
        *_, last = client.clone(CloneRequest(path=str(source), to=str(node.checkpoints / TARGET), batch=batch))
        return last

    with node.client() as client:
        for path, why in ((job, "only that engine can copy"), (checkpoint, r"by an absolute path.*take a savepoint")):
            with pytest.raises(RefusedError, match=why):
                copy_of(path)
        with pytest.raises(RefusedError, match="no batches"):
            copy_of(savepoint, 3)
        assert not (remote_files / TARGET).exists()
        last = copy_of(savepoint)
        assert (last.finished, last.batch) == (True, None)
        (copied,) = verified(client, node.checkpoints / TARGET).restores
        assert (copied.path, copied.restorable) == (str(node.checkpoints / TARGET), True)
    assert contents(remote_files / TARGET) == contents(savepoint)
    assert last.total == len(contents(savepoint)) - 1


def test_the_commands_say_what_they_do(node: Node, location: Path) -> None:
    query = node.checkpoints / QUERY
    planned = holdfast("checkpoint", "rewind", query, "--to", TO, "--idle", 0, socket=node.socket)
    assert "nothing was changed" in planned
    assert (location / "commits/8").exists()
    done = holdfast("checkpoint", "rewind", query, "--to", TO, "--idle", 0, "--yes", socket=node.socket)
    assert f"set aside {len(LATER)} entries" in done
    assert not (location / "commits/8").exists()
    copied = holdfast("checkpoint", "clone", query, node.checkpoints / TARGET, socket=node.socket)
    assert f"as after batch {TO}, with an id of its own" in copied
    undone = holdfast("checkpoint", "rewind", query, "--undo", "--idle", 0, socket=node.socket)
    assert f"{len(LATER)} objects put back" in undone
    assert (location / "commits/8").exists()
