"""Sweeps and drops of a running daemon: what goes in the store, and what its mount shows of that at once."""

from __future__ import annotations

import itertools
import json
import os
import pty
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import DropRequest, PlanInfo, SweepRequest
from holdfast.errors import DaemonUnreachableError
from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory, keys
from tests.mount.test_command import holdfast
from tests.support.checkpoints.checkpoint_roots import JOB, age, below, digest, job, put
from tests.support.daemons.faults.crash_points import POINT
from tests.support.daemons.faults.switches import ARMED
from tests.support.daemons.node import Node, StartError
from tests.support.stores.s3 import Versitygw

FILES_IN_BULK = 10_000
REQUESTS_IN_BULK = 25


def execute(client: ControlClient, plan: PlanInfo, *, at_once: bool = False) -> PlanInfo:
    """Carry a plan out; return what became of it."""
    for _ in client.execute(plan.id, at_once=at_once):
        pass
    return client.plan(plan.id)


def relative(node: Node, plan: PlanInfo) -> set[str]:
    return {str(Path(item.path).relative_to(node.checkpoints / JOB)) for item in plan.items}


def test_a_sweep_takes_the_garbage_and_nothing_else(node: Node, remote_files: Path) -> None:
    garbage = job(remote_files / JOB)
    before = below(remote_files / JOB)
    with node.client() as client:
        plan = client.plan_sweep(SweepRequest(path=str(node.checkpoints)))
        assert relative(node, plan) == garbage
        assert below(remote_files / JOB) == before, "a plan touches nothing"
        done = execute(client, plan)
    assert below(remote_files / JOB) == before - garbage
    assert (done.state, done.removed, done.removed_bytes) == ("done", 3, 10)
    assert node.wait_event("swept", plan=plan.id)["removed"] == 3
    assert node.status().counters["objects_swept"] == 3
    assert node.status().counters["bytes_swept"] == 10


@pytest.mark.promise("sweep-copies")
def test_the_mount_shows_at_once_that_copies_and_names_are_gone(node: Node, remote_files: Path) -> None:
    job(remote_files / JOB)
    orphan = node.checkpoints / JOB / "shared" / digest(1000)
    late = node.checkpoints / JOB / "exclusive/chk-3-late"
    kept = node.checkpoints / JOB / "shared" / digest(7)
    assert orphan.read_bytes() == b"12345"
    assert late.stat().st_size == 5  # only looked at: there is no copy
    with kept.open("rb"), orphan.open("rb") as reader:
        with node.client() as client:
            execute(client, client.plan_sweep(SweepRequest(path=str(node.checkpoints))))
        assert not orphan.exists()
        assert not late.exists()
        assert orphan.name not in os.listdir(orphan.parent)
        assert reader.read() == b"12345", "who has it open keeps reading"
        assert kept.read_bytes() == b"x"
    assert not (node.store / "tree/checkpoints" / JOB / "shared" / orphan.name).exists()


@pytest.mark.promise("sweep-copies")
def test_a_name_that_was_swept_can_be_written_again(node: Node, remote_files: Path) -> None:
    job(remote_files / JOB)
    late = node.checkpoints / JOB / "exclusive/chk-3-late"
    late.read_bytes()
    with node.client() as client:
        execute(client, client.plan_sweep(SweepRequest(path=str(node.checkpoints))))
    late.write_bytes(b"even later")
    assert (remote_files / JOB / "exclusive/chk-3-late").read_bytes() == b"even later"
    assert late.read_bytes() == b"even later"


@pytest.mark.promise("sweep-plans")
def test_a_plan_is_refused_when_another_node_has_changed_the_world(make_node: NodeFactory, remote_files: Path) -> None:
    node, other = make_node("a").start(), make_node("b").start()
    job(remote_files / JOB)
    with node.client() as client:
        plan = client.plan_sweep(SweepRequest(path=str(node.checkpoints)))
        (other.checkpoints / JOB / "shared" / digest(1000)).write_bytes(b"again")
        before = below(remote_files)
        with pytest.raises(RefusedError, match="the world has changed"):
            execute(client, plan)
    assert below(remote_files) == before


@pytest.mark.promise("sweep-writers")
def test_what_somebody_here_is_writing_is_left(node: Node, remote_files: Path) -> None:
    job(remote_files / JOB)
    late = node.checkpoints / JOB / "exclusive/chk-3-late"
    with late.open("r+b") as writer:
        writer.write(b"still at it")
        writer.flush()
        with node.client() as client:
            done = execute(client, client.plan_sweep(SweepRequest(path=str(node.checkpoints))), at_once=True)
        assert done.in_use == 1
    assert late.read_bytes() == b"still at it"
    assert (remote_files / JOB / "exclusive/chk-3-late").read_bytes() == b"still at it"


@pytest.mark.promise("sweep-writers")
def test_a_writer_never_fails_because_its_directory_went_away(node: Node, remote_files: Path) -> None:
    """Writers of files in directories that are empty and old, while one sweep after the other removes these."""
    job(remote_files / JOB)
    names = [f"chk-{number}" for number in (1, 2, 3)]
    stop, problems, written = threading.Event(), [], []
    removed: list[int] = []
    deadline = time.monotonic() + 120

    def is_enough(round_number: int) -> bool:
        """A sweep that finds all of the directories in use has shown nothing."""
        return round_number >= 60 and (sum(removed) > 0 or time.monotonic() > deadline)

    def write() -> None:
        try:
            for round_number in itertools.takewhile(lambda number: not is_enough(number), itertools.count()):
                for name in names:
                    file = node.checkpoints / JOB / name / f"file-{round_number}"
                    file.parent.mkdir(exist_ok=True)
                    file.write_bytes(b"late")
                    written.append(file)
                    file.unlink()
        except OSError as problem:
            problems.append(problem)
        finally:
            stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    with node.client() as client:
        while not stop.is_set():
            for name in names:
                directory = remote_files / JOB / name
                try:
                    directory.mkdir(exist_ok=True)
                    age(directory, 3)
                except FileNotFoundError:
                    continue
            plan = client.plan_sweep(SweepRequest(path=str(node.checkpoints)))
            removed.append(execute(client, plan, at_once=True).removed)
    writer.join()
    assert problems == []
    assert len(written) >= 60 * len(names)
    assert sum(removed)


@pytest.mark.promise("sweep-continued")
def test_two_daemons_sweep_at_the_same_time(make_node: NodeFactory, remote_files: Path) -> None:
    nodes = [make_node(name).start() for name in "ab"]
    garbage = job(remote_files / JOB, orphans=3000)
    before = below(remote_files / JOB)
    plans, outcomes = [], []
    for node in nodes:
        with node.client() as client:
            plans.append(client.plan_sweep(SweepRequest(path=str(node.checkpoints), items=0)))

    def sweep(node: Node, plan: PlanInfo) -> None:
        with node.client() as client:
            outcomes.append(execute(client, plan))

    threads = [threading.Thread(target=sweep, args=each) for each in zip(nodes, plans, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.state for outcome in outcomes] == ["done", "done"]
    assert below(remote_files / JOB) == before - garbage


@pytest.mark.promise("sweep-continued")
def test_a_sweep_is_carried_on_after_the_daemon_has_died(make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node()
    armed = node.directory / "armed"
    node.faults = ["crash_at_point"]
    node.environment |= {POINT: "unlink: the store was told", ARMED: str(armed)}
    node.start()
    garbage = job(remote_files / JOB, orphans=3000)
    before = below(remote_files / JOB)
    with node.client() as client:
        plan = client.plan_sweep(SweepRequest(path=str(node.checkpoints), items=0))
        armed.touch()  # it dies after the first request of three: a kill from here might come after all of them
        with suppress(DaemonUnreachableError):
            execute(client, plan)
    node.crashed()
    node.faults = []
    assert before - garbage < below(remote_files / JOB) < before
    node.start()
    with node.client() as client:
        assert client.plan(plan.id).state == "executing"
        done = execute(client, plan)
    assert (done.state, done.gone + done.removed) == ("done", len(garbage))
    assert done.gone >= 1000
    assert below(remote_files / JOB) == before - garbage


@pytest.mark.promise("sweep-requests")
def test_ten_thousand_files_take_a_few_requests(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    node = make_s3_node(counted).start()
    server_root = counted.directory / "checkpoints"
    garbage = job(server_root / JOB, orphans=FILES_IN_BULK - 1)
    counted.clear_log()
    with node.client() as client:
        plan = client.plan_sweep(SweepRequest(path=str(node.checkpoints), items=0))
        done = execute(client, plan, at_once=True)
    assert done.removed == FILES_IN_BULK == len(garbage) - 1, "a directory is nothing to S3"
    requests = counted.requests()
    print(dict(requests))
    assert sum(requests.values()) <= REQUESTS_IN_BULK, requests
    assert len([key for key in keys(counted) if key.startswith("checkpoints/")]) == 9


def test_a_plan_that_is_carried_out_later_costs_as_little(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    node = make_s3_node(counted).start()
    server_root = counted.directory / "checkpoints"
    job(server_root / JOB, orphans=FILES_IN_BULK - 1)
    with node.client() as client:
        plan = client.plan_sweep(SweepRequest(path=str(node.checkpoints), items=0))
        counted.clear_log()
        assert execute(client, plan).removed == FILES_IN_BULK
    assert sum(counted.requests().values()) <= REQUESTS_IN_BULK, counted.requests()


def test_a_drop_takes_a_checkpoint_out_of_the_mount(node: Node, remote_files: Path) -> None:
    job(remote_files / JOB)
    checkpoint = node.checkpoints / JOB / "chk-7"
    assert (checkpoint / "_metadata").read_bytes()
    with node.client() as client:
        plan = client.plan_drop(DropRequest(path=str(checkpoint)))
        assert [Path(item.path).name for item in plan.items][:2] == ["_metadata", "chk-7-state"]
        execute(client, plan)
    assert not checkpoint.exists()
    assert (node.checkpoints / JOB / "chk-8/_metadata").exists()
    assert (remote_files / JOB / "shared" / digest(7)).exists()


def test_a_daemon_that_is_told_to_sweeps_by_itself(make_node: NodeFactory, remote_files: Path) -> None:
    garbage = job(remote_files / JOB)
    before = below(remote_files / JOB)
    node = make_node(sweep__every_seconds=1, sweep__roots="checkpoints").start()
    assert node.wait_event("swept", removed=3)["zone"] == "checkpoints"
    assert node.wait_event("swept", removed=0), "and again in another period"
    assert below(remote_files / JOB) == before - garbage


def test_a_daemon_that_is_not_told_to_never_sweeps(make_node: NodeFactory, remote_files: Path) -> None:
    garbage = job(remote_files / JOB)
    node = make_node().start()
    with node.client() as client:  # a sweep of the daemon's own would have taken its lease by then
        plan = client.plan_sweep(SweepRequest(path=str(node.checkpoints)))
    node.stop()
    assert relative(node, plan) == garbage <= below(remote_files / JOB)
    assert not list((remote_files / ".holdfast").glob("sweep-*"))


def test_a_root_that_is_in_no_zone_is_refused_at_the_start(make_node: NodeFactory) -> None:
    with pytest.raises(StartError, match=r"sweep\.roots: there is no zone 'elsewhere'"):
        make_node(sweep__roots="elsewhere/x").start()


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_shows_what_why_and_how_much(node: Node, remote_files: Path) -> None:
    garbage = job(remote_files / JOB)
    said = holdfast("checkpoint", "sweep", node.checkpoints, "--dry-run", socket=node.socket)
    assert f"{JOB}/shared/{digest(1000)}" in said
    assert "shared file that nobody refers to" in said
    assert "3 entries, 10 B" in said
    plan_id = said.partition("plan ")[2].partition(" ")[0]
    assert f"holdfast checkpoint execute {plan_id}" in said
    assert "waiting" in holdfast("checkpoint", "plans", socket=node.socket)
    assert holdfast("checkpoint", "show", plan_id, socket=node.socket) in said
    assert holdfast("checkpoint", "execute", plan_id, socket=node.socket) == "removed 3 entries, 10 B\n"
    assert not garbage & below(remote_files / JOB)
    assert "has been carried out" in holdfast("checkpoint", "execute", plan_id, socket=node.socket, status=1)
    assert "nothing to remove" in holdfast("checkpoint", "sweep", node.checkpoints, socket=node.socket)


def test_the_command_without_a_terminal_only_plans_unless_it_is_told(node: Node, remote_files: Path) -> None:
    garbage = job(remote_files / JOB)
    sweep = ("checkpoint", "sweep", node.checkpoints, "--grace", "60")
    plan = json.loads(holdfast(*sweep, "--json", socket=node.socket))
    assert (plan["state"], plan["count"]) == ("waiting", 3)
    assert "nothing was changed" in holdfast(*sweep, socket=node.socket)
    drop = ("checkpoint", "drop", node.checkpoints / JOB / "chk-7")
    assert json.loads(holdfast(*drop, "--json", socket=node.socket))["state"] == "waiting"
    assert garbage <= below(remote_files / JOB)
    assert (remote_files / JOB / "chk-7/_metadata").exists()
    done = json.loads(holdfast(*sweep, "--yes", "--json", socket=node.socket))
    assert (done["state"], done["removed"], done["grace_seconds"]) == ("done", 3, 60)
    assert {item["reason"] for item in done["items"]} == {"unreferenced", "expired_checkpoint", "empty_directory"}
    assert not garbage & below(remote_files / JOB)


def test_a_plan_that_was_made_elsewhere_is_carried_out(make_node: NodeFactory, remote_files: Path, workspace: Path) -> None:
    maker, executor = make_node("a").start(), make_node("b").start()
    garbage = job(remote_files / JOB)
    with maker.client() as client:
        plan = client.plan_sweep(SweepRequest(path=str(maker.checkpoints)))
    file = workspace / "made-elsewhere"
    file.write_bytes((maker.store / f"plans/{plan.id}.plan").read_bytes())
    assert holdfast("checkpoint", "execute", file, socket=executor.socket) == "removed 3 entries, 10 B\n"
    assert not garbage & below(remote_files / JOB)
    lines = file.read_bytes().splitlines(keepends=True)
    put(remote_files / JOB / "shared" / digest(1000), b"12345", age_days=3)
    kept = lines[1].replace(b"exclusive/chk-3-late", b"exclusive/chk-7-state")
    file.write_bytes(lines[0].replace(b'"count":3', b'"count":1') + kept)
    assert "the world has changed" in holdfast("checkpoint", "execute", file, socket=executor.socket, status=1)
    file.write_bytes(b"no plan")
    assert "no plan of Holdfast's" in holdfast("checkpoint", "execute", file, socket=executor.socket, status=1)
    assert (remote_files / JOB / "exclusive/chk-7-state").exists()


@pytest.mark.parametrize(("answer", "goes"), [(b"n\n", False), (b"y\n", True)])
def test_the_command_at_a_terminal_asks(node: Node, remote_files: Path, answer: bytes, goes: bool) -> None:
    garbage = job(remote_files / JOB)
    terminal, end = pty.openpty()
    os.write(terminal, answer)
    command = [sys.executable, "-m", "holdfast", "checkpoint", "sweep", str(node.checkpoints), "--socket", str(node.socket)]
    result = subprocess.run(command, stdin=end, capture_output=True, text=True, check=False)
    os.close(terminal)
    os.close(end)
    assert "Remove 3 entries, 10 B? [y/N]:" in result.stdout
    assert (result.returncode == 0) is goes
    assert bool(garbage & below(remote_files / JOB)) is not goes


def test_the_grace_age_of_the_command_is_kept(node: Node, remote_files: Path) -> None:
    job(remote_files / JOB)
    said = holdfast("checkpoint", "sweep", node.checkpoints, "--grace", str(4 * 86400), socket=node.socket)
    assert said == f"nothing to remove below {node.checkpoints}\n"


def test_the_command_lists_and_drops_checkpoints(node: Node, remote_files: Path) -> None:
    job(remote_files / JOB, checkpoints=(7, 8, 9))
    listed = json.loads(holdfast("checkpoint", "ls", node.checkpoints, "--json", socket=node.socket))
    there = [Path(each["path"]).name for each in listed if each["what"] == "checkpoint" and each["complete"]]
    assert there == ["chk-7", "chk-8", "chk-9"]
    assert "checkpoint" in holdfast("checkpoint", "ls", node.checkpoints / JOB, socket=node.socket)
    checkpoint = node.checkpoints / JOB / "chk-8"
    assert "removed 8 entries" in holdfast("checkpoint", "drop", "--yes", "--up-to", checkpoint, socket=node.socket)
    assert not [name for name in below(remote_files / JOB) if "chk-7" in name or "chk-8" in name]
    assert (checkpoint.parent / "chk-9/_metadata").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("drop", "{mount}/checkpoints/x"), "is no checkpoint"),
        (("drop", "{mount}/checkpoints/job/chk-1"), "nothing of it is in the store"),
        (("sweep", "/nowhere"), "not in the mount"),
        (("execute", "20200101-000000-aaaaaa"), "there is no plan"),
        (("show", "../x"), "no id of a plan"),
    ],
)
def test_mistakes_are_one_line(node: Node, arguments: tuple[str, ...], message: str) -> None:
    filled = [argument.replace("{mount}", str(node.mountpoint)) for argument in arguments]
    said = holdfast("checkpoint", *filled, socket=node.socket, status=1)
    assert message in said
    assert said.count("\n") == 1


def test_negative_ages_and_numbers_of_batches_are_refused(node: Node) -> None:
    said = holdfast("checkpoint", "sweep", node.checkpoints, "--grace", "-1", socket=node.socket, status=2)
    assert "'-1' is no number from 0 to" in said
    with node.client() as client, pytest.raises(RefusedError, match="can't be negative"):
        client.plan_sweep(SweepRequest(path=str(node.checkpoints), min_batches_to_retain=-1))


def test_names_of_checkpoints_are_not_for_everybody(node: Node, remote_files: Path) -> None:
    job(remote_files / JOB)
    with ControlClient(node.socket.with_name("status.sock")) as client:
        for ask in (lambda: client.checkpoints(str(node.checkpoints)), client.plans):
            with pytest.raises(RefusedError, match="not for everybody"):
                ask()
        with pytest.raises(RefusedError, match="not for everybody"):
            client.plan_sweep(SweepRequest(path=str(node.checkpoints)))


def test_unfinished_uploads_of_dead_nodes_go_with_the_whole_store(node: Node, remote_files: Path) -> None:
    staged = put(remote_files / ".holdfast" / ("f" * 32), b"half", age_days=2)
    young = put(remote_files / ".holdfast" / ("e" * 32), b"half")
    put(remote_files / "any", age_days=2)
    with node.client() as client:
        execute(client, client.plan_sweep(SweepRequest(path=str(node.checkpoints))))
    assert not staged.exists()
    assert young.exists()
