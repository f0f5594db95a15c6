"""The demo's entry point."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast_spark.demo.driver import DriverError
from holdfast_spark.demo.report import Report
from holdfast_spark.demo.scenario import Stage, play
from holdfast_spark.pipeline.data import FLIGHTS

_FILES = range(6, 1000)
"""The numbers of files that may be asked for: at least two batches before each kill."""


def main() -> int:
    """Play the demo; return the exit status."""
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("--directory", type=Path, help="an empty directory on a real disk (default: one in /var/tmp)")
    parser.add_argument("--files", type=int, default=24, help="in how many files the flights arrive, one a batch")
    parser.add_argument(
        "--remote",
        default="",
        help="a URL without objects below it, where the stores are (default: a directory); their options are variables, as "
        "HOLDFAST_STORES__CHECKPOINTS__OPTIONS__ENDPOINT",
    )
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    options = parser.parse_args()
    if (
        options.directory
        and options.directory.exists()
        and (not options.directory.is_dir() or any(options.directory.iterdir()))
    ):
        parser.error(
            f"--directory: {options.directory} is not an empty directory; what the demo has made there it removes at its end"
        )
    if options.files not in _FILES:
        parser.error(f"--files: {options.files} is not between {_FILES[0]} and {_FILES[-1]}")
    directory = options.directory or Path(tempfile.mkdtemp(prefix="holdfast-demo-", dir="/var/tmp"))
    report = Report()
    report.say(f"{FLIGHTS:,} flights of 2013, kept in RocksDB state on the mount; all files are in {directory}")
    stage = Stage(directory, options.remote, report)
    try:
        acts = play(stage, options.files, report)
        report.say("comparing with a plain batch computation over the same files")
        result = _compare(stage)
    except (DriverError, HoldfastError, RuntimeError, KeyboardInterrupt) as problem:
        sys.stderr.write(f"\ndemo: {problem or 'interrupted'}\n\nThe logs and all other files are still in {directory}\n")
        return 1
    finally:
        stage.close()
    report.table(acts)
    report.verdict(result)
    if options.keep:
        report.say(f"kept {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if result["missing"] or result["wrong"] else 0


def _compare(stage: Stage) -> dict[str, int]:
    command = ["--input", str(stage.input), "--output", str(stage.output)]
    with stage.log.open("ab") as log:
        result = subprocess.run(
            [sys.executable, "-P", "-m", "holdfast_spark.pipeline.check", *command],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
        )
    if not result.stdout.strip():
        raise RuntimeError(f"the comparison failed; {stage.log} tells why")
    answer: dict[str, int] = json.loads(result.stdout.splitlines()[-1])
    return answer


sys.exit(main())
