"""``./run matrix``: run the queries of the matrix under each Spark, over a real mount, and write the table of docs/spark.md.

Every Spark is installed once, outside of the checkout. Under each the queries run side by side, are killed, verified, swept,
copied, go on, and are rewound; and it goes on from copies of what each earlier Spark has left. Exits with 1 if anything is
wrong that ``limits.py`` does not explain.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.matrix.history import History, Left, sessions_of
from tests.matrix.outcomes import Outcomes
from tests.matrix.programs import Programs
from tests.matrix.queries import KINDS
from tests.matrix.sparks import NotInstalledError, Spark, sparks
from tests.support.daemons.node import Node

_PAGE = Path(__file__).parents[2] / "docs/spark.md"
_BEGIN, _END = "<!-- ./run matrix writes this table -->\n", "<!-- end of the table -->\n"


def main() -> int:
    """Run what is asked for."""
    options = _parser().parse_args()
    chosen = [spark for spark in sparks() if not options.sparks or spark.short in options.sparks]
    directory = Path(tempfile.mkdtemp(prefix="holdfast-matrix-", dir=options.directory))
    directory.chmod(0o755)
    outcomes = Outcomes(_say)
    try:
        _run(chosen, options.only or [kind.name for kind in KINDS], directory, outcomes)
    except NotInstalledError as problem:
        _say(f"a Spark could not be installed: {problem}")
        return 2
    print(outcomes.table(), flush=True)
    if outcomes.unexplained:
        _say(f"{len(outcomes.unexplained)} outcomes are wrong; all of it is in {directory}")
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
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    return parser


def _run(chosen: list[Spark], kinds: list[str], directory: Path, outcomes: Outcomes) -> None:
    remote = directory / "remote"
    node = Node(directory / "node", f"file://{remote}/checkpoints", f"file://{remote}/blobs", log__level="info")
    left: list[Left] = []
    histories: list[History] = []
    try:
        node.start()
        for spark in chosen:
            began = time.monotonic()
            for sessions in sessions_of(spark):
                before = [each for each in left if each.spark != spark and each.queries and each.sessions.is_for(sessions)]
                histories.append(History(spark, sessions, node, directory, outcomes))
                left.append(histories[-1].live(kinds, before))
            Programs(spark, node, directory, outcomes).run()
            _say(f"Spark {spark.version}: {time.monotonic() - began:.0f} s")
        for history in histories:
            history.go_back([each for each in left if each.spark.release > history.spark.release])
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
