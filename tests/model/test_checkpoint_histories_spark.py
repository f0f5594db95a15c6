"""Whatever a query does, and whenever a sweep comes: every version that could be restored still can, and garbage goes."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast.checkpoints.formats.spark.names import STATE_OF_A_VERSION, SparkKind, SparkName, parse_spark
from holdfast.checkpoints.reachability import Examination, Plan, Policy, sweep
from tests.support.checkpoints.roots import DAY, HOUR, SECOND
from tests.support.spark.history import Query, Shape
from tests.support.spark.restore import Checkpoint, Restorable

shapes = st.builds(
    Shape,
    provider=st.just("rocksdb"),
    checkpoint_format=st.integers(1, 2),
    has_changelogs=st.booleans(),
    stores=st.sampled_from([("",), ("left", "right")]),
    min_batches=st.integers(1, 4),
    deltas_for_snapshot=st.integers(1, 4),
) | st.builds(
    Shape,
    provider=st.just("hdfs"),
    checkpoint_format=st.just(1),
    has_changelogs=st.just(False),
    stores=st.just(("",)),
    min_batches=st.integers(1, 4),
    deltas_for_snapshot=st.integers(1, 4),
)


class Histories(RuleBasedStateMachine):
    query: Query
    policy: Policy
    begun: Examination[Plan] | None = None

    @initialize(shape=shapes)
    def the_query_starts(self, shape: Shape) -> None:
        self.query = Query(shape)
        self.policy = Policy(HOUR, DAY, shape.min_batches)

    # --- the query ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.query.is_running)
    @rule(
        lost=st.integers(0, 1),
        batches=st.integers(1, 9),
        minutes=st.sampled_from([1, 40]),
        purges=st.booleans(),
        maintains=st.booleans(),
    )
    def batches_run(self, lost: int, batches: int, minutes: int, purges: bool, maintains: bool) -> None:
        for _ in range(batches):
            self.query.run(lost)
            self._pass(minutes * 60)
            if purges:
                self.query.purge()
            if maintains:
                self.query.maintain()

    @precondition(lambda self: self.query.is_running)
    @rule()
    def a_batch_fails_after_its_state_was_written(self) -> None:
        self.query.run(commits=False)

    @precondition(lambda self: self.query.is_running)
    @rule()
    def maintenance_runs(self) -> None:
        self.query.maintain()

    @rule()
    def spark_purges_its_logs(self) -> None:
        self.query.purge()

    @rule()
    def the_query_crashes(self) -> None:
        self.query.crash()

    @precondition(lambda self: not self.query.is_running)
    @rule()
    def the_query_restarts(self) -> None:
        self.query.restart()

    @rule()
    def a_killed_writer_leaves_things_behind(self) -> None:
        self.query.leave_behind()

    # --- time and sweeps ----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([60, 2 * 3600, 48 * 3600]))
    def time_passes(self, seconds: int) -> None:
        self._pass(seconds)

    @rule(first=st.none() | st.integers(0, 9))
    def a_sweep_comes(self, first: int | None) -> None:
        self._execute(self.query.root.sweep(self.policy), first)

    @precondition(lambda self: self.begun is None)
    @rule()
    def a_slow_sweep_has_its_listing(self) -> None:
        self.begun = sweep(self.query.root.listing(), self.policy, self.query.root.now_ns)

    @precondition(lambda self: self.begun is not None)
    @rule(first=st.none() | st.integers(0, 9))
    def the_slow_sweep_reads_and_deletes(self, first: int | None) -> None:
        begun, self.begun = self.begun, None
        assert begun is not None
        self._execute(self.query.root.carry_out(begun), first)

    def _execute(self, plan: Plan, first: int | None) -> None:
        root = self.query.root
        names = {entry.name for entry in plan.entries}
        before = Checkpoint(root).restorable()
        assert not names & self.query.in_use()
        assert not any(name.startswith((b"q/commits/", b"q/offsets/")) and b"/." not in name for name in names)
        root.execute(plan, first)
        assert Checkpoint(root).restorable() == before

    def teardown(self) -> None:
        """After all has come to rest, one sweep leaves nothing that is not needed."""
        root = self.query.root
        self.query.crash()
        self._pass(DAY // SECOND)
        plan = root.sweep(self.policy)
        self._execute(plan, None)
        assert root.sweep(self.policy).entries == ()
        commits = [int(name[10:]) for name in root.files if name.startswith(b"q/commits/") and name[10:].isdigit()]
        if not commits or plan.kept:
            return
        self._no_temporary_files_nor_lonely_checksums()
        self._every_shared_file_is_named()
        oldest = min(min(commits), max(commits) - self.policy.min_batches_to_retain)
        self._everything_below_is_needed(oldest)

    def _no_temporary_files_nor_lonely_checksums(self) -> None:
        for name in self.query.root.files:
            entry = parse_spark(name.removeprefix(b"q/"))
            assert isinstance(entry, SparkName)
            assert not entry.is_temporary
            assert not entry.layers or b"q/" + entry.owner in self.query.root.files

    def _every_shared_file_is_named(self) -> None:
        files = self.query.root.files
        named = {sst for name, ssts in self.query.snapshots.items() if name.encode() in files for sst in ssts}
        there = {name.rpartition(b"/")[2].decode() for name in files if b"/SSTs/" in name}
        assert there <= named

    def _everything_below_is_needed(self, oldest: int) -> None:
        """By a batch whose commit is there, or, in format 1, by the oldest one if it runs again."""
        root = self.query.root
        needs = self._needs(oldest)
        snapshots = {self._version(name) for name in root.files if name.endswith((b".zip", b".snapshot"))}
        for name in list(root.files):
            version = self._version(name)
            if version is not None and version < oldest and version not in snapshots and any(needs):
                kept = root.files.pop(name)
                assert self._needs(oldest) != needs, name
                root.files[name] = kept

    def _needs(self, oldest: int) -> tuple[set[Restorable], set[bytes]]:
        checkpoint = Checkpoint(self.query.root)
        return checkpoint.restorable(), checkpoint.restorable_at(oldest)

    @staticmethod
    def _version(name: bytes) -> int | None:
        entry = parse_spark(name.removeprefix(b"q/"))
        is_state = isinstance(entry, SparkName) and entry.kind in STATE_OF_A_VERSION and not entry.layers
        return entry.number if is_state and isinstance(entry, SparkName) and entry.kind is not SparkKind.SST else None

    def _pass(self, seconds: int) -> None:
        self.query.root.now_ns += seconds * SECOND


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=250, stateful_step_count=30, deadline=None)
