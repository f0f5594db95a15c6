"""Sweeps and drops as the daemon carries them out, over generated histories of jobs and queries, at any moment.

What is planned, stored, confirmed, cut off, carried on, and done by two nodes at a time never takes what a retained
checkpoint reaches, nor what one under way will refer to; and after all has come to rest nothing else is left.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from holdfast.checkpoints.sweeps.plan_format import StoredPlan
from tests.model import test_checkpoint_histories_flink as flink
from tests.model import test_checkpoint_histories_spark as spark
from tests.support.checkpoints.fleet import Fleet
from tests.support.checkpoints.roots import DAY, SECOND, Root
from tests.support.flink.history import Completed, Job
from tests.support.spark.history import Shape
from tests.support.spark.restore import Checkpoint

cuts = st.none() | st.integers(0, 3)


def names(root: Root) -> set[bytes]:
    return set(root.files) | set(root.directories)


class FlinkStores(flink.Histories):
    """Flink's jobs and Holdfast's own, below one root."""

    stored: StoredPlan | None = None

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(self.world.root)
        self.half_dropped: set[bytes] = set()

    @rule(first=cuts)
    def a_sweep_comes(self, first: int | None) -> None:
        needed = self._needed()
        self.fleet.sweep(flink.POLICY, first)
        self._has(needed)

    @precondition(lambda self: self.stored is None)
    @rule()
    def a_slow_sweep_has_its_listing(self) -> None:
        self.stored = self.fleet.plan(flink.POLICY)

    @precondition(lambda self: self.stored is not None)
    @rule(first=cuts)
    def the_slow_sweep_reads_and_deletes(self, first: int | None) -> None:
        needed = self._needed()
        assert self.stored is not None
        self.fleet.execute(self.stored, first)
        self._has(needed)
        if first is None:
            self.stored = None

    @rule(index=flink.indices)
    def two_nodes_sweep_at_the_same_time(self, index: int) -> None:
        needed = self._needed()
        self.fleet.sweep_twice_at_a_time(flink.POLICY, lambda: self._goes_on(index, needed))
        self._has(needed)

    @rule(index=flink.indices, all_before=st.booleans(), first=cuts)
    def somebody_drops_an_old_checkpoint(self, index: int, all_before: bool, first: int | None) -> None:
        """Never the newest one: the job goes on from that."""
        job = self._one(index, [job for job in self.world.jobs if len(job.completed) > 1])
        if job is None:
            return
        dropped = job.completed[-2] if all_before else job.completed[0]
        gone = job.completed[:-1] if all_before else [dropped]
        if any(not _is_chk(each) for each in gone) or any(not each.metadata.startswith(job.name.encode()) for each in gone):
            return
        job.completed = [each for each in job.completed if each not in gone]
        own = {each.metadata for each in gone}
        earlier = {name for name in self.half_dropped if all_before and name.startswith(job.name.encode() + b"/")}
        needed = self._needed(own | earlier)
        if first is not None:
            self.half_dropped |= own
        self.fleet.drop(dropped.metadata.rpartition(b"/")[0].decode(), all_before=all_before, cut_after=first)
        self._has(needed)

    def teardown(self) -> None:
        """After all has come to rest, one sweep leaves nothing that is not needed; a second one has nothing to do."""
        world = self.world
        for job in world.jobs:
            world.crash(job)
        world.root.now_ns += flink.POLICY.abandoned_ns
        needed = self._needed()
        plan = self.fleet.sweep(flink.POLICY)
        assert plan.header.kept == []
        self._has(needed)
        assert world.root.files.keys() == world.reachable() | (world.never & world.root.files.keys())
        assert not [each for each in world.root.directories if not any(n.startswith(each + b"/") for n in world.root.files)]
        assert self.fleet.plan(flink.POLICY).items == ()
        self.fleet.end()

    def _goes_on(self, index: int, needed: set[bytes]) -> None:
        """A job takes a checkpoint meanwhile, of all that it may still refer to."""
        job: Job | None = self._one(index, self._under_way())
        if job is not None:
            self.world.complete(job)
            needed &= self._needed()
            needed |= self._needed()

    def _needed(self, dropped: Set[bytes] = frozenset()) -> set[bytes]:
        there = (self.world.refers_to.keys() & self.world.root.files.keys()) - dropped
        reached = there.union(*(self.world.refers_to[name] for name in there))
        return (reached | self.world.under_way() | self.world.never) & names(self.world.root)

    def _has(self, needed: set[bytes]) -> None:
        assert needed <= names(self.world.root)


def _is_chk(completed: Completed) -> bool:
    return completed.metadata.split(b"/")[-2].startswith(b"chk-")


class SparkStores(spark.Histories):
    """A query of Spark's, in every shape."""

    stored: StoredPlan | None = None
    fleet: Fleet

    @initialize(shape=spark.shapes)
    def the_query_starts(self, shape: Shape) -> None:
        super().the_query_starts(shape)
        self.fleet = Fleet(self.query.root)

    @rule(first=cuts)
    def a_sweep_comes(self, first: int | None) -> None:
        self._unharmed(lambda: self.fleet.sweep(self.policy, first))

    @precondition(lambda self: self.stored is None)
    @rule()
    def a_slow_sweep_has_its_listing(self) -> None:
        self.stored = self.fleet.plan(self.policy)

    @precondition(lambda self: self.stored is not None)
    @rule(first=cuts)
    def the_slow_sweep_reads_and_deletes(self, first: int | None) -> None:
        stored = self.stored
        assert stored is not None
        self._unharmed(lambda: self.fleet.execute(stored, first))
        if first is None:
            self.stored = None

    @rule()
    def two_nodes_sweep_at_the_same_time(self) -> None:
        self._unharmed(lambda: self.fleet.sweep_twice_at_a_time(self.policy, lambda: None))

    def teardown(self) -> None:
        """After all has come to rest, one sweep leaves nothing for a second one."""
        if not hasattr(self, "fleet"):
            return
        self.query.crash()
        self._pass(DAY // SECOND)
        self._unharmed(lambda: self.fleet.sweep(self.policy))
        assert self.fleet.plan(self.policy).items == ()
        self.fleet.end()

    def _unharmed(self, action: Callable[[], object]) -> None:
        root = self.query.root
        restorable, in_use = Checkpoint(root).restorable(), self.query.in_use()
        logs = {name for name in root.files if name.startswith((b"q/commits/", b"q/offsets/")) and b"/." not in name}
        action()
        assert Checkpoint(root).restorable() == restorable
        assert in_use | logs <= root.files.keys()


TestFlinkStores = FlinkStores.TestCase
TestFlinkStores.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSparkStores = SparkStores.TestCase
TestSparkStores.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
