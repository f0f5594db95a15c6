"""Plans made of a store, kept, confirmed and carried out: what goes, in which order, and when nothing does."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from holdfast.checkpoints.formats.own import OwnFile, OwnMetadata, own_metadata
from holdfast.checkpoints.reachability import Policy
from holdfast.checkpoints.sweeps.object_stream import ObjectStream
from holdfast.checkpoints.sweeps.plan_format import StoredPlan, read_plan
from holdfast.checkpoints.sweeps.plan_store import PlanStore, new_id
from holdfast.errors import ObjectChangedError, PlanError, PlanOutdatedError, RemoteRefusedError
from tests.support.checkpoints import samples
from tests.support.checkpoints.checkpoint_roots import JOB, digest
from tests.support.checkpoints.root_store import RootStore
from tests.support.checkpoints.roots import DAY, HOUR, SECOND, Root
from tests.support.checkpoints.sweeps import SweepsOver
from tests.unit.checkpoints.test_checkpoint_sweep_spark import add_state, location

POLICY = Policy(grace_ns=HOUR, abandoned_ns=DAY, min_batches_to_retain=2)


@pytest.fixture
def root() -> Root:
    """A job with two checkpoints, two shared files, an orphan, a late file and the directory it came to."""
    root = Root()
    for number in (7, 8):
        names = [f"shared/{digest(number)}", f"exclusive/chk-{number}-state"]
        for name in names:
            root.write(f"flink/{JOB}/{name}", age_ns=3 * DAY)
        metadata = OwnMetadata(number, tuple(OwnFile(name, 1, "") for name in names))
        root.write(f"flink/{JOB}/chk-{number}/_metadata", own_metadata(metadata), age_ns=2 * DAY - number * SECOND)
        root.mkdir(f"flink/{JOB}/chk-{number}", age_ns=2 * DAY)
    root.write(f"flink/{JOB}/shared/{digest(1)}", b"12345", age_ns=3 * DAY)
    root.write(f"flink/{JOB}/exclusive/chk-3-late", age_ns=3 * DAY)
    root.mkdir(f"flink/{JOB}/chk-3", age_ns=3 * DAY)
    root.write(f"flink/{JOB}/taskowned/{digest(2)}", age_ns=9 * DAY)
    root.write("flink/notes.txt", age_ns=9 * DAY)
    return root


GARBAGE = {f"flink/{JOB}/shared/{digest(1)}", f"flink/{JOB}/exclusive/chk-3-late", f"flink/{JOB}/chk-3"}


@pytest.fixture
def store(root: Root) -> RootStore:
    return RootStore(root)


@pytest.fixture
def node(store: RootStore, tmp_path: Path) -> SweepsOver:
    return SweepsOver(store, tmp_path / "plans")


def names(root: Root) -> set[str]:
    return {name.decode() for name in (*root.files, *root.directories)}


def planned(plan: StoredPlan) -> set[str]:
    return {f"{plan.header.root}/{item.name}".lstrip("/") for item in plan.items}


# --- sweeps -----------------------------------------------------------------------------------------------------------


async def test_a_sweep_takes_what_was_planned_and_tells_the_node(node: SweepsOver, root: Root) -> None:
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    assert planned(plan) == GARBAGE
    assert plan.header.kept == []
    before = names(root)
    outcome = await node.carry_out(plan)
    assert names(root) == before - GARBAGE
    assert (outcome.state, outcome.removed, outcome.removed_bytes, outcome.gone) == ("done", 3, 6, 0)
    assert sorted(node.copies.told) == sorted([*(GARBAGE - {f"flink/{JOB}/chk-3"}), f"flink/{JOB}/chk-3/"])
    assert (node.counters.objects_swept, node.counters.bytes_swept) == (3, 6)
    (event,) = [event.fields for event in node.events.since(0) if event.kind == "swept"]
    assert (event["removed"], event["bytes"], event["root"]) == (3, 6, "flink")
    assert (await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)).items == ()


async def test_a_plan_that_is_carried_out_at_once_costs_no_second_listing(node: SweepsOver, store: RootStore) -> None:
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    listings = store.requests["list"]
    await node.carry_out(plan, at_once=True)
    assert store.requests["list"] == listings
    assert store.requests["delete"] == 1


async def test_another_daemon_lists_again_whatever_it_is_told(
    node: SweepsOver, store: RootStore, root: Root, tmp_path: Path
) -> None:
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    root.write(f"flink/{JOB}/shared/{digest(1)}", b"another")
    later = SweepsOver(store, tmp_path / "plans")
    with pytest.raises(PlanOutdatedError, match="the world has changed"):
        await later.carry_out(later.plan_store.get(plan.header.id), at_once=True)


@pytest.mark.parametrize("change", ["replaced", "referred to"])
async def test_a_plan_is_refused_when_the_world_has_changed(node: SweepsOver, root: Root, change: str) -> None:
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    orphan = f"flink/{JOB}/shared/{digest(1)}"
    if change == "replaced":
        root.write(orphan, b"54321", age_ns=2 * DAY)
    else:
        metadata = own_metadata(OwnMetadata(9, (OwnFile(f"shared/{digest(1)}", 5, ""),)))
        root.write(f"flink/{JOB}/chk-9/_metadata", metadata)
    before = names(root)
    with pytest.raises(PlanOutdatedError, match=r"1 of 3 would not go any more .*nothing was touched"):
        await node.carry_out(plan)
    assert names(root) == before
    assert node.plan_store.outcome(plan.header.id).state == "waiting"


async def test_a_sweep_that_is_cut_off_is_carried_on(node: SweepsOver, root: Root, store: RootStore, tmp_path: Path) -> None:
    for number in range(2500):
        root.write(f"flink/{JOB}/shared/{digest(10_000 + number)}", age_ns=3 * DAY)
    before = names(root)
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    store.failures = [None, RemoteRefusedError("no more today")]
    with pytest.raises(RemoteRefusedError):
        await node.carry_out(plan)
    assert node.plan_store.outcome(plan.header.id).state == "executing"
    assert len(before) - len(names(root)) == 1000
    restarted = SweepsOver(store, tmp_path / "plans")
    outcome = await restarted.carry_out(restarted.plan_store.get(plan.header.id))
    assert (outcome.state, outcome.gone, outcome.removed) == ("done", 1000, 1503)
    assert names(root) == before - planned(plan)


async def test_an_object_that_can_not_be_deleted_keeps_no_later_one_from_being_swept(
    node: SweepsOver, root: Root, store: RootStore, tmp_path: Path
) -> None:
    for number in range(2500):
        root.write(f"flink/{JOB}/shared/{digest(10_000 + number)}", age_ns=3 * DAY)
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    store.failures = [None, RemoteRefusedError("it is locked", of_store=False)]
    with pytest.raises(RemoteRefusedError, match="locked"):
        await node.carry_out(plan)
    assert len([name for name in planned(plan) & names(root) if "/shared/" in name]) == 1000, "the second thousand"
    assert node.plan_store.outcome(plan.header.id).state == "executing"


async def test_a_sweep_cut_off_before_its_directories_still_takes_them(node: SweepsOver, root: Root) -> None:
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    root.delete(name.encode() for name in GARBAGE if "/chk-3" not in name)
    root.mkdir(f"flink/{JOB}/chk-3")
    await node.carry_out(plan)
    assert not GARBAGE & names(root)


async def test_a_directory_that_somebody_writes_to_stays(node: SweepsOver, root: Root) -> None:
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    written = root.write(f"flink/{JOB}/chk-3/new").decode()
    await node.carry_out(plan)
    assert {written, f"flink/{JOB}/chk-3"} <= names(root)


async def test_two_sweepers_do_not_hurt_each_other(store: RootStore, root: Root, tmp_path: Path) -> None:
    nodes = [SweepsOver(store, tmp_path / name) for name in "ab"]
    plans = [await node.sweeps.plan_sweep("checkpoints", "flink", POLICY) for node in nodes]
    before = names(root)
    steps = [node.sweeps.execute(plan, at_once=False) for node, plan in zip(nodes, plans, strict=True)]
    await anext(steps[0])  # the first has confirmed its plan, and has deleted some
    outcomes = [[step.outcome async for step in rest][-1] for rest in reversed(steps)]
    assert [outcome.state for outcome in outcomes] == ["done", "done"]
    assert names(root) == before - GARBAGE


async def test_what_this_node_is_writing_stays(node: SweepsOver, root: Root) -> None:
    orphan = f"flink/{JOB}/shared/{digest(1)}"
    node.copies.busy.add(orphan)
    outcome = await node.carry_out(await node.sweeps.plan_sweep("checkpoints", "flink", POLICY))
    assert outcome.in_use == 1
    assert orphan in names(root)


async def test_what_ended_writers_have_left_here_goes_with_the_sweep(node: SweepsOver) -> None:
    left, busy = "flink/.5.tmp", "flink/.6.tmp"
    node.copies.left_here = {left: 7, busy: 1, "elsewhere/.5.tmp": 1}
    node.copies.busy.add(busy)
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    assert planned(plan) == {*GARBAGE, left, busy}
    assert [item.step() for item in plan.items] == sorted(item.step() for item in plan.items)
    outcome = await node.carry_out(plan)
    assert (outcome.removed, outcome.removed_bytes, outcome.gone, outcome.in_use) == (4, 13, 0, 1)
    assert node.copies.left_here.keys() == {busy, "elsewhere/.5.tmp"}
    assert not {left, busy} & set(node.copies.told), "no store has them"


async def test_what_is_only_here_is_planned_without_a_request(node: SweepsOver, store: RootStore, root: Root) -> None:
    before = names(root)
    assert await node.sweeps.plan_leftovers("checkpoints", "flink", POLICY) is None
    node.copies.left_here = {"flink/.5.tmp": 7, "flink/.6.tmp": 1}
    plan = await node.sweeps.plan_leftovers("checkpoints", "flink", POLICY)
    assert plan is not None
    del node.copies.left_here["flink/.6.tmp"]
    assert store.requests.total() == 0
    outcome = await node.carry_out(plan)
    assert (outcome.removed, outcome.removed_bytes, outcome.gone) == (1, 7, 1)
    assert names(root) == before


async def test_a_plan_is_carried_out_once(node: SweepsOver) -> None:
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    await node.carry_out(plan)
    with pytest.raises(PlanOutdatedError, match="has been carried out"):
        await node.carry_out(plan)


async def test_a_plan_is_not_carried_out_twice_at_a_time(node: SweepsOver) -> None:
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    first = node.sweeps.execute(plan, at_once=True)
    await anext(first)
    with pytest.raises(PlanError, match="at this moment"):
        await node.carry_out(plan)
    assert [step.outcome.state async for step in first][-1] == "done"


async def test_another_stores_plan_is_refused(node: SweepsOver, store: RootStore) -> None:
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    store.url = "test://another"
    with pytest.raises(PlanError, match="is for test://root, which is not"):
        await node.carry_out(plan)


async def test_what_can_not_be_read_is_said_and_keeps_everything(node: SweepsOver, root: Root) -> None:
    root.write(f"flink/{JOB}/chk-8/_metadata", b"\x00" * 100, age_ns=2 * DAY)
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    assert {item.phase for item in plan.items} == {"directory"}
    assert [kept.scope for kept in plan.header.kept] == [f"{JOB}/chk-8/_metadata"]


async def test_a_store_that_does_not_answer_is_an_error_and_not_an_empty_root(node: SweepsOver, store: RootStore) -> None:
    class Refusing(RootStore):
        def read(self, *arguments: object) -> object:  # type: ignore[override]
            raise RemoteRefusedError("403")

    store.__class__ = Refusing
    with pytest.raises(RemoteRefusedError, match="403"):
        await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    assert node.plan_store.ids() == []


@pytest.mark.parametrize("name", [name for name in samples.names() if "versions" not in name])
async def test_a_plan_of_a_store_is_that_of_its_listing(name: str, tmp_path: Path) -> None:
    root = Root.of_sample(samples.sample(name))
    node = SweepsOver(RootStore(root), tmp_path / "plans")
    plan = await node.sweeps.plan_sweep("checkpoints", "", POLICY)
    expected = root.sweep(POLICY)
    assert [item.name.encode() for item in plan.items] == [entry.name for entry in expected.entries]
    outcome = await node.carry_out(plan)
    assert outcome.removed == len(expected.entries)


# --- drops ------------------------------------------------------------------------------------------------------------


async def test_a_drop_takes_the_metadata_first_and_all_that_is_exclusive(node: SweepsOver, root: Root) -> None:
    plan = await node.sweeps.plan_drop("checkpoints", f"flink/{JOB}/chk-7", None, all_before=False)
    assert (plan.header.root, plan.header.checkpoints) == ("flink", [f"{JOB}/chk-7"])
    assert [item.name for item in plan.items] == [f"{JOB}/chk-7/_metadata", f"{JOB}/exclusive/chk-7-state", f"{JOB}/chk-7"]
    told = node.copies.told
    async for _ in node.sweeps.execute(plan, at_once=False):
        assert told[:1] == [f"flink/{JOB}/chk-7/_metadata"]
    assert f"flink/{JOB}/shared/{digest(7)}" in names(root), "a sweep takes it"
    assert f"flink/{JOB}/chk-8/_metadata" in names(root)


async def test_a_drop_of_all_up_to_a_checkpoint(node: SweepsOver, root: Root) -> None:
    plan = await node.sweeps.plan_drop("checkpoints", f"flink/{JOB}/chk-7", None, all_before=True)
    assert plan.header.checkpoints == [f"{JOB}/chk-3", f"{JOB}/chk-7"]
    await node.carry_out(plan)
    assert not [name for name in names(root) if "chk-3" in name or "chk-7" in name]


async def test_a_drop_cut_off_after_the_metadata_is_carried_on(node: SweepsOver, root: Root, store: RootStore) -> None:
    plan = await node.sweeps.plan_drop("checkpoints", f"flink/{JOB}/chk-7", None, all_before=False)
    store.failures = [None, RemoteRefusedError("no more today")]
    with pytest.raises(RemoteRefusedError):
        await node.carry_out(plan)
    assert f"flink/{JOB}/chk-7/_metadata" not in names(root)
    assert f"flink/{JOB}/exclusive/chk-7-state" in names(root)
    await node.carry_out(plan)
    assert not [name for name in names(root) if "chk-7" in name]


async def test_what_a_sibling_job_has_claimed_stays(node: SweepsOver, root: Root) -> None:
    metadata = own_metadata(OwnMetadata(1, (OwnFile("exclusive/chk-7-state", 1, ""),)))
    root.write(f"flink/{'b' * 32}/chk-1/_metadata", metadata, age_ns=DAY)
    plan = await node.sweeps.plan_drop("checkpoints", f"flink/{JOB}/chk-7", None, all_before=False)
    assert [item.name for item in plan.items] == [f"{JOB}/chk-7/_metadata", f"{JOB}/chk-7"]


async def test_batches_of_spark_are_dropped_with_all_before(tmp_path: Path) -> None:
    root = location(range(10))
    add_state(root, *(f"{version}.zip" for version in range(1, 11)))
    node = SweepsOver(RootStore(root), tmp_path / "plans")
    with pytest.raises(PlanError, match="use --up-to"):
        await node.sweeps.plan_drop("checkpoints", "q/commits/5", None, all_before=False)
    plan = await node.sweeps.plan_drop("checkpoints", "q/offsets/5", None, all_before=True)
    assert plan.header.root == "q"
    await node.carry_out(plan)
    assert {name for name in names(root) if "/commits/" in name} == {f"q/commits/{batch}" for batch in range(6, 10)}
    assert {name for name in names(root) if name.endswith(".zip")} == {f"q/state/0/0/{n}.zip" for n in range(6, 11)}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"flink/{JOB}/chk-5", "nothing of it is in the store"),
        (f"flink/{JOB}", "is no checkpoint"),
        ("flink/savepoint-aaaaaa-bbbbbbbbbbbb", "savepoints are never touched"),
        ("q/commits/5", "there is no batch 5"),
    ],
)
async def test_what_is_no_checkpoint_can_not_be_dropped(node: SweepsOver, name: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        await node.sweeps.plan_drop("checkpoints", name, None, all_before=True)


async def test_a_census_is_of_what_lies_below(node: SweepsOver) -> None:
    found = await node.sweeps.census("checkpoints", f"flink/{JOB}")
    assert [each.name for each in found if each.what == "checkpoint"] == [b"chk-3", b"chk-7", b"chk-8"]


# --- plans that are kept ----------------------------------------------------------------------------------------------


async def test_the_format_of_a_plan(node: SweepsOver, root: Root, tmp_path: Path) -> None:
    """Others write plans too: PySpark jobs, scripts."""
    root.files = {name: each for name, each in root.files.items() if b"shared" in name or b"chk-8" in name}
    root.directories.clear()
    root.delete([f"flink/{JOB}/exclusive/chk-8-state".encode(), f"flink/{JOB}/shared/{digest(7)}".encode()])
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    text = (tmp_path / "plans" / f"{plan.header.id}.plan").read_text()
    orphan = plan.items[0]
    assert text == (
        f'{{"holdfast_plan":1,"id":"{plan.header.id}","kind":"sweep","zone":"checkpoints","root":"flink",'
        f'"store":"test://root","made_ns":{root.now_ns},'
        '"policy":{"grace_seconds":3600.0,"abandoned_seconds":86400.0,"min_batches_to_retain":2},'
        '"checkpoints":[],"kept":[],"count":1,"size_bytes":5}\n'
        f'{{"name":"{JOB}/shared/{digest(1)}","reason":"unreferenced","about":"shared of {JOB}","size_bytes":5,'
        f'"mtime_ns":{orphan.mtime_ns},"etag":"{orphan.etag}","phase":"file"}}\n'
    )
    assert node.plan_store.get(plan.header.id) == plan
    assert orphan.why == f"shared file that nobody refers to: shared of {JOB}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "no plan of Holdfast's"),
        (b"{}\n", "no plan of Holdfast's"),
        (b"\xff\xfe\n", "no plan of Holdfast's"),
    ],
)
def test_what_is_no_plan_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read_plan(io.BytesIO(text))


async def test_a_plan_that_is_cut_off_damaged_or_of_another_format_is_refused(node: SweepsOver) -> None:
    plan = await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    lines = list(plan.lines())
    for damaged in (
        lines[:-1],
        [lines[0].replace(b'"holdfast_plan":1', b'"holdfast_plan":2'), *lines[1:]],
        [lines[0], lines[1].replace(b'"reason":"', b'"reason":"un'), *lines[2:]],
        [lines[0], lines[1][:-20] + b"\n", *lines[2:]],
    ):
        with pytest.raises(PlanError):
            read_plan(io.BytesIO(b"".join(damaged)))


async def test_only_the_newest_plans_are_kept(node: SweepsOver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.checkpoints.sweeps.plan_store._KEPT_PLANS", 2)
    ids = []
    for number in range(3):
        monkeypatch.setattr("holdfast.checkpoints.sweeps.execution.new_id", lambda n=number: f"20200101-00000{n}-aaaaaa")
        ids.append((await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)).header.id)
    assert node.plan_store.ids() == ids[1:]
    assert sorted(file.name for file in (tmp_path / "plans").iterdir()) == [f"{each}.plan" for each in ids[1:]]


async def test_what_crashes_have_left_goes_and_what_another_writes_stays(node: SweepsOver, tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    left_over, under_way = (tmp_path / "plans" / f".new-{each}.plan" for each in ("20200101-000000-aaaaaa", new_id()))
    left_over.write_text("half of one")
    os.utime(left_over, (0, 0))
    under_way.write_text("the first half of one")
    await node.sweeps.plan_sweep("checkpoints", "flink", POLICY)
    assert (left_over.exists(), under_way.exists()) == (False, True)


@pytest.mark.parametrize("plan_id", ["", "../../etc/passwd", "20200101-000000-AAAAAA", "x"])
def test_an_id_leads_nowhere_else(tmp_path: Path, plan_id: str) -> None:
    with pytest.raises(PlanError, match="no id of a plan"):
        PlanStore(tmp_path).get(plan_id)


def test_a_plan_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="there is no plan"):
        PlanStore(tmp_path).get(new_id())


# --- streams over objects ---------------------------------------------------------------------------------------------


def test_a_stream_asks_for_what_is_read_only(root: Root, store: RootStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.checkpoints.sweeps.object_stream._BLOCK_BYTES", 10)
    content = bytes(range(95))
    root.write("large", content)
    stream = ObjectStream(store, "large")
    assert stream.seek(-7, io.SEEK_END) == 88
    assert stream.read() == content[88:]
    stream.seek(5)
    assert stream.read(20) == content[5:25]
    assert stream.tell() == 25
    assert store.requests["get"] == 5
    stream.seek(0)
    assert stream.read() == content
    with pytest.raises(OSError, match="before the beginning"):
        stream.seek(-1)
    root.write("large", b"replaced" * 20)
    stream.seek(40)
    with pytest.raises(ObjectChangedError):
        stream.read(1)
