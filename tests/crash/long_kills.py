"""``./run python -m tests.crash.long_kills``: the kill test by hand, longer, and with the demo's Spark job among the load.

The daemon is killed as often as is asked for, or until the job has done its batches. Then the job's answer is compared with
a batch computation over the same flights, and everything else is checked as in the suite.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from holdfast_spark.demo.driver import Batch, Driver
from holdfast_spark.pipeline.data import arrive, split_flights
from tests.mount.test_objects import objects
from tests.support.daemons.aftermath import assert_in_order
from tests.support.daemons.node import Node
from tests.support.load.kills import KillTest


def main() -> None:
    """Run, print what was found, end with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.crash.long_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="so many")
    parser.add_argument("--batches", type=int, default=60, help="of the Spark job")
    parser.add_argument("--life", type=float, default=4.0, help="how many seconds a daemon serves at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", default="/var/tmp", help="on the disk that is to be used")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-kills-", dir=options.directory))
    remote = directory / "remote"
    node = Node(directory / "node", f"file://{remote}/checkpoints", f"file://{remote}/blobs")
    node.supervised = True
    try:
        _run(node.start(), directory, options)
        assert_in_order(node, partial(objects, remote / "checkpoints"))
        node.stop()
    finally:
        node.clean_up()
    shutil.rmtree(directory)


def _run(node: Node, directory: Path, options: argparse.Namespace) -> None:
    paths = ["--input", str(directory / "arriving"), "--output", str(directory / "output")]
    for path in split_flights(directory / "flights", options.batches):
        arrive(path, directory / "arriving")
    until = ["--until", str(options.batches - 1), "--socket", str(node.socket)]
    driver = Driver([*paths, *until], directory / "driver.log")
    seconds: list[float] = []

    def note(batch: Batch) -> None:
        seconds.append(batch.milliseconds / 1000)

    with ThreadPoolExecutor(1) as executor, ExitStack() as ends:
        ends.callback(driver.kill)
        driver.run_until_entered(0, note)
        test = ends.enter_context(KillTest(node, options.seed, options.life))
        job = executor.submit(driver.run_to_end, note)
        kills = 0
        while kills < options.kills and not job.done():
            test.kill()
            kills += 1
        print(f"{kills} kills; {len(seconds)} of {options.batches} batches of Spark done")
        job.result()
        print(f"Spark: the longest batch took {max(seconds):.1f} s")
        test.stop(print)
    command = [sys.executable, "-m", "holdfast_spark.pipeline.check", *paths]
    with (directory / "driver.log").open("ab") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    print(done.stdout.splitlines()[-1] if done.stdout else "the comparison failed")
    assert done.returncode == 0
    answer = json.loads(done.stdout.splitlines()[-1])
    assert (answer["missing"], answer["wrong"]) == (0, 0)


if __name__ == "__main__":
    main()
