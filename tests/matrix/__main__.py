"""``./run matrix``: run the queries of the matrix under each Spark, over a real mount, and write the table of docs/spark.md.

Every Spark is installed once, outside of the checkout. Under each the queries run side by side, are killed, verified, swept,
copied, go on, and are rewound; and it goes on from copies of what each earlier Spark has left. Exits with 1 if anything is
wrong that ``limits.py`` does not explain. With ``--go-on``, and otherwise the same options, it does what is left of a run
that was interrupted, and again what was wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.matrix.history import History, Left, sessions_of
from tests.matrix.outcomes import Outcomes
from tests.matrix.programs import Programs
from tests.matrix.queries import KINDS
from tests.matrix.sparks import NotInstalledError, Spark, sparks
from tests.matrix.steps import Steps
from tests.support.daemons.node import Node

_PAGE = Path(__file__).parents[2] / "docs/spark.md"
_BEGIN, _END = "<!-- ./run matrix writes this table -->\n", "<!-- end of the table -->\n"


def main() -> int:
    """Run what is asked for."""
    options = _parser().parse_args()
    chosen = [spark for spark in sparks() if not options.sparks or spark.short in options.sparks]
    directory = options.go_on or Path(tempfile.mkdtemp(prefix="holdfast-matrix-", dir=options.directory))
    directory.chmod(0o755)
    outcomes = Outcomes(_say)
    _say(f"in {directory}")
    try:
        _run(chosen, options.only or [kind.name for kind in KINDS], directory, outcomes)
    except NotInstalledError as problem:
        _say(f"a Spark could not be installed: {problem}")
        return 2
    print(outcomes.table(), flush=True)
    if outcomes.unexplained:
        _say(f"{len(outcomes.unexplained)} outcomes are wrong; all of it is in {directory} (--go-on)")
        return 1
    if options.write:
        _write(outcomes.table())
    shutil.rmtree(directory)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run matrix", description=__doc__)
    parser.add_argument("--sparks", nargs="*", choices=[spark.short for spark in sparks()], help="only these")
    parser.add_argument("--only", nargs="*", choices=[kind.name for kind in KINDS], help="only queries of these kinds")
    parser.add_argument("--write", action="store_true", help="write the table into docs/spark.md")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="where it makes its own (default /var/tmp)")
    parser.add_argument("--go-on", type=Path, metavar="DIRECTORY", help="with the run in this directory, which it has named")
    return parser


def _run(chosen: list[Spark], kinds: list[str], directory: Path, outcomes: Outcomes) -> None:
    remote = directory / "remote"
    node = Node(directory / "node", f"file://{remote}/checkpoints", f"file://{remote}/blobs", log__level="info")
    steps = Steps(directory, outcomes)
    left: list[Left] = []
    histories: list[History] = []
    try:
        node.start()
        for spark in chosen:
            began = time.monotonic()
            for sessions in sessions_of(spark):
                before = [each for each in left if each.spark != spark and each.queries and each.sessions.is_for(sessions)]
                history = History(spark, sessions, node, directory, outcomes)
                steps.do(history.name, partial(history.live, kinds, before))
                histories.append(history)
                left.append(history.left(kinds))
            steps.do(f"{spark.version}-programs", Programs(spark, node, directory, outcomes).run)
            _say(f"Spark {spark.version}: {time.monotonic() - began:.0f} s")
        for history in histories:
            later = [each for each in left if each.spark.release > history.spark.release]
            steps.do(f"{history.name}, back", partial(history.go_back, later))
    finally:
        node.clean_up()


def _write(table: str) -> None:
    before, begin, rest = _PAGE.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin, f"{_PAGE} has no line {_BEGIN}"
    assert end, f"{_PAGE} has no line {_END}"
    _PAGE.write_text(f"{before}{begin}\n{table}\n{end}{after}")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
