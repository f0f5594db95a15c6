"""``./run python -m tests.histories.flink_restarts``: Flink's checkpoints damaged file by file; does it agree with verify?

A real job writes checkpoints or a savepoint in each of some shapes; each of their files in turn is taken away, cut short,
emptied or has a byte flipped. Verify says what can be restored; Flink restores the newest, and one of the others by turns,
all in one JVM. It has to go on with the right state where verify says that it can, and to fail or come to something else
where it can't. Flink has no digests: of a flipped byte, which verify finds with ``--deep`` and the mount never hands out, it
is only counted what Flink makes of it by itself. Prints each disagreement, and a table. Exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.checkpoints.damages import damages
from tests.support.flink.real_flink import Flink
from tests.support.flink.trials import SHAPES, Laid, Trial, trial


def main() -> int:
    """Try the shapes that are asked for."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.flink_restarts", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=sorted(SHAPES), default=list(SHAPES))
    parser.add_argument("--every", type=int, default=1, help="try only each so many")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-flink-restarts-", dir="/var/tmp"))
    flink = Flink(directory)
    wrong = 0
    print(
        "| state | damages | restores | restored | refused | disagreements | flipped | refused | wrong state | right state |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for name in options.only:
        began = time.monotonic()
        trials = list(_trials(flink, name, directory / name, options.every))
        judged = [each for each in trials if each.damage.kind != "flipped"]
        for each in judged:
            if not each.agrees:
                wrong += 1
                faults = each.verdict.faults if each.verdict else "nothing to restore"
                print(f"DISAGREE: {each.damage} from {each.name}: {faults}; Flink: {each.answer}", flush=True)
        print(f"| {name} | {' | '.join(map(str, (*_judged(judged), *_flipped(trials))))} |", flush=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    shutil.rmtree(directory)
    return 1 if wrong else 0


def _judged(trials: list[Trial]) -> tuple[int, ...]:
    restored = sum(each.is_right for each in trials)
    disagreeing = sum(not each.agrees for each in trials)
    return len({each.damage for each in trials}), len(trials), restored, len(trials) - restored, disagreeing


def _flipped(trials: list[Trial]) -> tuple[int, ...]:
    answers = [(each.answer, each.is_right) for each in trials if each.damage.kind == "flipped"]
    refused = sum(answer.startswith("refused") for answer, _ in answers)
    right = sum(is_right for _, is_right in answers)
    return len(answers), refused, len(answers) - refused - right, right


def _trials(flink: Flink, shape: str, directory: Path, every: int) -> Iterator[Trial]:
    laid = Laid(flink, SHAPES[shape], directory)
    *older, newest = laid.names
    with laid.restoring(flink) as restores:
        right = {name: restores.restore(laid.root / name) for name in laid.names}
        assert all(answer.startswith("restored") for answer in right.values()), right
        for number, damage in enumerate(damages(laid.files(laid.names))):
            if number % every == 0:
                for name in (newest, *older[number // every % len(older) :][:1]) if older else (newest,):
                    yield trial(laid, damage, name, right[name], restores.restore)


if __name__ == "__main__":
    sys.exit(main())
