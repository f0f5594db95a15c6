"""The common part of the commands of all jobs: arguments, a session, progress, and errors of one line."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.system.text import printable_lines
from holdfast_spark.jobs.inventory_files import Inventory
from holdfast_spark.jobs.progress import Progress
from holdfast_spark.pipeline.local import stay_on_this_machine
from holdfast_spark.stores import StoreAddress

_OURS = re.compile(r"holdfast\.errors\.(?:\w+): (.+)")
_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?: .*\n)+(\S.*)")
_MOST_SECONDS = 2**33  # in nanoseconds they fit into 64 bits
_ATTEMPTS = 4
"""The number of attempts at a task, as on a cluster: a listing that breaks off is begun anew."""

Job = Callable[[SparkSession, argparse.Namespace, Progress], int | None]


def run(name: str, job: Job, parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    """Run a job with a session of its own, or with the one that is there; return the exit status."""
    options = parser.parse_args(arguments)
    progress = Progress(f"holdfast {name}")
    there = SparkSession.getActiveSession()
    try:
        spark = there or _session(name)
        try:
            return job(spark, options, progress.of(spark)) or 0
        finally:
            if there is None:
                spark.stop()
    except HoldfastError as problem:
        message = str(problem)
    except (PySparkException, Py4JJavaError) as problem:
        message = _told(problem)
    except KeyboardInterrupt:
        message = "interrupted"
    sys.stderr.write(f"holdfast {name}: {printable_lines(message)}\n")
    return 1


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser for ``python -m holdfast_spark.jobs.NAME``."""
    return argparse.ArgumentParser(
        prog=f"python -m holdfast_spark.jobs.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ``address_of`` takes."""
    parser.add_argument("store", metavar="STORE", help="the store's URL, as the daemon is given it")
    parser.add_argument(
        "--store-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the library behind the URL, as in the daemon's configuration; credentials belong into the "
        "environment, of the executors too",
    )


def address_of(options: argparse.Namespace) -> StoreAddress:
    """Return the store that was named. Raises ``HoldfastError`` when it can't be opened, or does not answer."""
    pairs = [option.partition("=") for option in options.store_option]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise ConfigurationError(f"--store-option {name}: write NAME=VALUE")
    address = StoreAddress(options.store, {name: value for name, _, value in pairs})
    address.open().probe()
    return address


def add_store_and_inventory(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ``store_and_inventory`` takes."""
    add_store(parser)
    parser.add_argument("inventory", metavar="INVENTORY", help="of this store, as the job inventory makes it")


def store_and_inventory(spark: SparkSession, options: argparse.Namespace) -> tuple[StoreAddress, Inventory]:
    """Return the store and the inventory that were named. Raises as ``address_of``, and when the one is not of the other."""
    address = address_of(options)
    inventory = Inventory(spark, options.inventory)
    inventory.check_store(address.open().url)
    return address, inventory


def made(directory: Path) -> Path:
    """Return a directory of this machine, made if it is missing, to write to when the work is done.

    Raises ``ConfigurationError`` when nothing can be written there: better now than then.
    """
    try:
        directory.mkdir(exist_ok=True)
    except OSError as problem:
        raise ConfigurationError(f"{directory} can't be written to: {os.strerror(problem.errno or 0)}") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{directory} can't be written to by this user")
    return directory


def parts_of(spark: SparkSession, given: int | None) -> int:
    """Return into how many parts work is divided: four for each core, at least 16, unless a number is given."""
    return given or max(16, 4 * spark.sparkContext.defaultParallelism)


def _session(name: str) -> SparkSession:
    """Return a session as ``spark-submit`` has set it up, or one on this machine alone."""
    builder = SparkSession.builder.appName(f"holdfast {name}")
    if SparkConf().get("spark.master", None) is None:
        stay_on_this_machine()
        builder = builder.master(f"local[*,{_ATTEMPTS}]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.log.level", "FATAL")  # what a person needs to know is printed
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()


def _told(problem: Exception) -> str:
    """Return what a task's error says: ours if one of ours was its cause, else Python's, else Spark's first line."""
    text = str(problem)
    if ours := _OURS.search(text):
        return ours[1]
    return next(iter([*_PYTHON.findall(text)[-1:], *text.strip().splitlines()]), type(problem).__name__)


def seconds(text: str) -> float:
    """Read a length of time, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def positive(text: str) -> int:
    """Read a number above 0, for argparse."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)
