"""Whatever jobs do, and whenever a sweep comes: it takes nothing that is or will be needed, and in the end all garbage."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.checkpoints.formats.flink_layout import FlinkKind, FlinkName, parse_flink
from holdfast.checkpoints.reachability import Examination, Plan, Policy, sweep
from tests.support.checkpoints.roots import DAY, HOUR, SECOND
from tests.support.flink.history import Job, World

POLICY = Policy(grace_ns=HOUR, abandoned_ns=DAY)
indices = st.integers(0, 5)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.begun: Examination[Plan] | None = None

    # --- jobs ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.world.jobs) < 4)
    @rule(is_holdfasts_own=st.booleans(), retained=st.integers(1, 3))
    def a_job_starts(self, is_holdfasts_own: bool, retained: int) -> None:
        self.world.start(is_holdfasts_own=is_holdfasts_own, retained=retained)

    @rule(index=indices, shared=st.integers(0, 2), exclusive=st.integers(0, 2), forget=st.integers(0, 2))
    def a_checkpoint_begins(self, index: int, shared: int, exclusive: int, forget: int) -> None:
        if job := self._one(index, [job for job in self.world.jobs if job.is_running and job.attempt is None]):
            self.world.begin(job, shared, exclusive, forget)

    @rule(index=indices, shared=st.integers(0, 2), forget=st.integers(0, 1), hours=st.integers(0, 2))
    def a_checkpoint_is_taken(self, index: int, shared: int, forget: int, hours: int) -> None:
        if job := self._one(index, [job for job in self.world.jobs if job.is_running and job.attempt is None]):
            self.world.begin(job, shared, 1, forget)
            self.world.root.now_ns += SECOND
            self.world.complete(job)
            self.time_passes(3600 * hours)

    @rule(index=indices, discards_halfway=st.booleans())
    def a_checkpoint_is_complete(self, index: int, discards_halfway: bool) -> None:
        if job := self._one(index, self._under_way()):
            self.world.complete(job, discards_halfway=discards_halfway)

    @rule(index=indices)
    def a_checkpoint_fails(self, index: int) -> None:
        if job := self._one(index, self._under_way()):
            self.world.fail(job)

    @rule(index=indices)
    def a_job_crashes(self, index: int) -> None:
        if job := self._one(index, [job for job in self.world.jobs if job.is_running]):
            self.world.crash(job)

    @rule(index=indices, forgets_its_number=st.booleans())
    def a_job_restarts(self, index: int, forgets_its_number: bool) -> None:
        if job := self._one(index, [job for job in self.world.jobs if not job.is_running and not job.is_over]):
            self.world.restart(job, forgets_its_number=forgets_its_number)

    @rule(index=indices, owns=st.booleans())
    def a_job_goes_on_from_another(self, index: int, owns: bool) -> None:
        ended = [job for job in self.world.jobs if not job.is_running and not job.is_over and job.completed]
        if job := self._one(index, ended):
            self.world.claim(job, owns=owns)

    @rule()
    def a_savepoint_is_taken(self) -> None:
        self.world.savepoint()

    @precondition(lambda self: self.world.savepoints)
    @rule(index=indices)
    def a_job_goes_on_from_a_savepoint(self, index: int) -> None:
        self.world.claim_savepoint(index % len(self.world.savepoints))

    @rule(index=indices, which=indices)
    def a_file_comes_late(self, index: int, which: int) -> None:
        if job := self._one(index, [job for job in self.world.jobs if job.over_numbers]):
            self.world.late_file(job, which)

    @rule(index=indices)
    def somebody_leaves_a_file(self, index: int) -> None:
        if job := self._one(index, self.world.jobs):
            self.world.never.add(self.world.root.write(f"{job.name}/chk-1/notes-{self.world.root.now_ns}"))

    # --- time and sweeps ----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 60, 3 * 3600, 20 * 3600]))
    def time_passes(self, seconds: int) -> None:
        """No checkpoint takes as long as it takes to abandon it: Flink itself would give it up."""
        self.world.root.now_ns += seconds * SECOND
        for job in self._under_way():
            if job.attempt and self.world.root.now_ns - job.attempt.started_ns >= POLICY.abandoned_ns:
                self.world.fail(job)

    @rule(first=st.none() | st.integers(0, 5))
    def a_sweep_comes(self, first: int | None) -> None:
        self._execute(self.world.root.sweep(POLICY), first)

    @precondition(lambda self: self.begun is None)
    @rule()
    def a_slow_sweep_has_its_listing(self) -> None:
        self.begun = sweep(self.world.root.listing(), POLICY, self.world.root.now_ns)

    @precondition(lambda self: self.begun is not None)
    @rule(first=st.none() | st.integers(0, 5))
    def the_slow_sweep_reads_and_deletes(self, first: int | None) -> None:
        begun, self.begun = self.begun, None
        assert begun is not None
        self._execute(self.world.root.carry_out(begun), first)

    def _execute(self, plan: Plan, first: int | None) -> None:
        names = {entry.name for entry in plan.entries}
        assert not names & self.world.reachable()
        assert not names & self.world.under_way()
        assert not names & self.world.never
        self.world.root.execute(plan, first)

    @invariant()
    def the_clock_of_a_file_never_goes_ahead(self) -> None:
        assert all(mtime_ns <= self.world.root.now_ns for _, mtime_ns in self.world.root.files.values())

    def teardown(self) -> None:
        """After all has come to rest, one sweep leaves nothing that is not needed."""
        world = self.world
        for job in world.jobs:
            world.crash(job)
        world.root.now_ns += POLICY.abandoned_ns
        plan = world.root.sweep(POLICY)
        assert plan.kept == ()
        self._execute(plan, None)
        assert world.root.files.keys() == world.reachable() | (world.never & world.root.files.keys())
        emptied = [each for each in world.root.directories if not any(n.startswith(each + b"/") for n in world.root.files)]
        assert emptied == []
        assert plan.retained >= {name for name in world.reachable() if _is_judged(name)}

    def _under_way(self) -> list[Job]:
        return [job for job in self.world.jobs if job.is_running and job.attempt is not None]

    @staticmethod
    def _one(index: int, jobs: list[Job]) -> Job | None:
        return jobs[index % len(jobs)] if jobs else None


def _is_judged(name: bytes) -> bool:
    entry = parse_flink(name)
    return isinstance(entry, FlinkName) and entry.kind in (FlinkKind.EXCLUSIVE, FlinkKind.SHARED)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
