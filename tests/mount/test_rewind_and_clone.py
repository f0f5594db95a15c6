"""``holdfast checkpoint rewind`` and ``clone`` on a running daemon: what is in the store then."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import CloneRequest, PlanInfo, RewindRequest, SweepRequest
from tests.mount.test_command import holdfast
from tests.mount.test_verify import QUERY, lay, lay_listed, newest, verified
from tests.support.checkpoint_roots import below
from tests.support.node import Node

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


def test_a_query_that_has_just_written_is_not_taken_back(node: Node, location: Path) -> None:
    assert location.exists()
    with node.client() as client, pytest.raises(RefusedError, match="seems to run"):
        client.plan_rewind(RewindRequest(path=str(node.checkpoints / QUERY), to=TO))


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


def test_a_job_of_flink_is_not_copied_and_it_says_so(node: Node, remote_files: Path) -> None:
    lay_listed(remote_files, "flink-incremental")
    (job,) = (remote_files / "checkpoints").iterdir()
    with node.client() as client, pytest.raises(RefusedError, match="only that engine can copy"):
        *_, _ = client.clone(
            CloneRequest(path=str(node.checkpoints / "checkpoints" / job.name), to=str(node.checkpoints / TARGET))
        )


def test_the_commands_say_what_they_do(node: Node, location: Path) -> None:
    query = node.checkpoints / QUERY
    planned = holdfast("checkpoint", "rewind", query, "--to", TO, "--idle", 0, socket=node.socket)
    assert "nothing was touched" in planned
    assert (location / "commits/8").exists()
    done = holdfast("checkpoint", "rewind", query, "--to", TO, "--idle", 0, "--yes", socket=node.socket)
    assert f"set aside {len(LATER)} entries" in done
    assert not (location / "commits/8").exists()
    copied = holdfast("checkpoint", "clone", query, node.checkpoints / TARGET, socket=node.socket)
    assert f"as after batch {TO}, with an id of its own" in copied
