"""``./run python -m tests.histories.spark``: hundreds of batches with kills, a sweep, a restart from every retained batch.

For each way in which Spark keeps state: the demo's job runs, one file a batch; driver and JVM are killed in the middle of
batches; garbage is planted; the daemon plans and executes a sweep; another node with an empty disk ends the batch that was
under way and goes on; then the state of each retained batch is read, and the query restarted from it, which has to come to
the result that the batch after it had. Prints what happens, and a table. Exits with 1 if anything that is needed has gone,
or garbage is left.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast_spark.demo.driver import Batch
from tests.support.daemons.node import Node
from tests.support.spark.flights_job import Job
from tests.support.spark.shapes import SHAPES, StateShape, at_the_pace_of_tests
from tests.support.spark.swept_history import History, Restart, Swept

_MORE_BATCHES = 2
"""After the sweep: the one that was under way, and one more."""
_TOLD_EVERY = 25
_KIB = 1024


@dataclass(frozen=True)
class Row:
    """What came of one history."""

    shape: str
    batches: int
    kills: int
    swept: Swept
    restarts: list[Restart]
    answer: dict[str, int]

    @property
    def is_good(self) -> bool:
        """Whether nothing needed has gone, nothing superfluous is left, and all answers are right."""
        swept = self.swept
        all_whole = not (swept.leftovers or swept.lost or swept.planned_again or swept.plan.kept)
        all_equal = bool(self.restarts) and all(each.equal for each in self.restarts)
        return all_whole and all_equal and self.answer["missing"] == self.answer["wrong"] == 0


def main() -> int:
    """Run the histories that are asked for."""
    options = _parser().parse_args()
    shapes = [shape for shape in SHAPES if not options.only or shape.name in options.only]
    rows = []
    for shape in shapes:
        directory = Path(tempfile.mkdtemp(prefix=f"holdfast-history-{shape.name}-", dir=options.directory))
        rows.append(_history(shape, directory, options))
        if rows[-1].is_good:
            shutil.rmtree(directory)
        else:
            _say(f"something is wrong; all of it is in {directory}")
        print(_table(rows), flush=True)
    return 0 if all(row.is_good for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.spark", description=__doc__)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--retain", type=int, default=100, help="minBatchesToRetain, Spark's and the sweep's")
    parser.add_argument("--only", nargs="*", choices=[shape.name for shape in SHAPES])
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    return parser


def _history(shape: StateShape, directory: Path, options: argparse.Namespace) -> Row:
    batches, kills = options.batches, options.kills
    _say(f"{shape.name}: {batches} batches, {kills} kills, in {directory}")
    began = time.monotonic()
    settings = {**shape.settings(), **at_the_pace_of_tests(maintenance="5s", min_batches=options.retain)}
    job = Job(directory, batches + _MORE_BATCHES, settings)
    history = History(job, directory / "remote/checkpoints", directory, options.retain)
    first, second = (_node(directory, name) for name in ("first", "second"))
    try:
        first.start()
        history.play(first, _kill_points(batches, kills), _tell)
        swept = history.sweep(first)
        _tell_swept(swept)
        first.stop()
        history.go_on(second.start(), batches + 1)
        answer = job.differences()
        _say(f"another node ended the batch and ran one more: {answer}")
    finally:
        first.clean_up()
        second.clean_up()
    restarts = []
    for restart in history.restarts():
        restarts.append(restart)
        if not restart.equal or len(restarts) % _TOLD_EVERY == 0:
            _say(
                f"restart {len(restarts)}, from batch {restart.commit}: {'the same' if restart.equal else 'ANOTHER'} answer"
            )
    _say(f"{shape.name}: {len(restarts)} restarts; {time.monotonic() - began:.0f} s in all")
    return Row(shape.name, batches, kills, swept, restarts, answer)


def _node(directory: Path, name: str) -> Node:
    remote = directory / "remote"
    return Node(directory / name, f"file://{remote}/checkpoints", f"file://{remote}/blobs", log__level="info")


def _kill_points(batches: int, kills: int) -> list[int]:
    """The last one is in the batch after all others."""
    return [batches * (number + 1) // kills for number in range(kills)]


def _tell(batch: Batch) -> None:
    if batch.number % _TOLD_EVERY == 0:
        _say(f"batch {batch.number}: {batch.rows} rows in {batch.milliseconds} ms")


def _tell_swept(swept: Swept) -> None:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(swept.plan.by_reason.items()))
    _say(f"swept {swept.plan.removed} files, {swept.plan.removed_bytes} bytes: {reasons}")
    for what, names in (("left over", swept.leftovers), ("lost", swept.lost), ("kept", swept.plan.kept)):
        for name in sorted(map(str, names))[:20]:
            _say(f"{what}: {name}")


def _table(rows: Iterable[Row]) -> str:
    lines = [
        "| state | batches | kills | files before | KiB before | planted | swept | KiB swept | files after | KiB after"
        " | orphans left | retained batches | restarted |",
        "|---|" + "--:|" * 12,
    ]
    for row in rows:
        swept = row.swept
        cells = (
            row.shape,
            row.batches,
            row.kills,
            swept.before.files,
            swept.before.size_bytes // _KIB,
            swept.planted,
            swept.plan.removed,
            swept.plan.removed_bytes // _KIB,
            swept.after.files,
            swept.after.size_bytes // _KIB,
            len(swept.leftovers),
            len(row.restarts),
            sum(bool(restart.equal) for restart in row.restarts),
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
