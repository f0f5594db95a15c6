"""``holdfast-pyspark JOB.py ARGUMENTS…``: the Python of drivers whose jobs have no line of Holdfast's in them.

A properties file names it (``spark.pyspark.driver.python``), and ``spark-submit`` runs every Python job by it. The first
session that the job makes is set up as by ``configure``; but what the job or its properties have set stays, and without a
daemon the job runs as it would without Holdfast.
"""

from __future__ import annotations

import logging
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.control.client import RefusedError
from holdfast.errors import HoldfastError
from holdfast_spark.class_names import load_known_classes
from holdfast_spark.plugin import STEP_ASIDE
from holdfast_spark.session import directory_name, install, links_in_mount, local_directory
from holdfast_spark.state_settings import settings, state_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("holdfast.driver")


def main() -> None:
    """Run the job that the arguments name. Without arguments, run Python itself, as the ``pyspark`` shell needs it."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    job = Path(sys.argv[1])
    del sys.argv[0]
    sys.path.insert(0, str(job.parent))  # as Python does for a script
    set_up_first_session(job.stem)
    runpy.run_path(str(job), run_name="__main__")


def set_up_first_session(job: str) -> None:
    """Set up the first session of this process once the job makes it. ``job`` is its name if it gives itself none."""
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    plain: Callable[[SparkSession.Builder], SparkSession] = SparkSession.Builder.getOrCreate

    def set_up(builder: SparkSession.Builder) -> SparkSession:
        SparkSession.Builder.getOrCreate = plain  # type: ignore[assignment, method-assign]
        if is_remote() or "spark.remote" in builder._options:  # noqa: SLF001 what has been set so far is nowhere else
            return builder.getOrCreate()  # a client of Spark Connect: the driver is elsewhere
        given = _given(builder)
        try:
            local, made = _made(str(given.get("spark.app.name") or job))
        except HoldfastError as problem:
            _log.warning("this job runs without Holdfast: %s", problem)
            return builder.getOrCreate()
        for key, value in made.items():
            if key not in given:
                builder.config(key, value)
        if local is not None:
            load_known_classes(local, builder._options)  # noqa: SLF001 as above
        spark = builder.getOrCreate()
        install(spark, local=local)
        return spark

    SparkSession.Builder.getOrCreate = set_up  # type: ignore[assignment, method-assign]


def _given(builder: SparkSession.Builder) -> dict[str, object]:
    """Return what the job and its properties have set so far."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001 only then a SparkConf has the properties
    return {**dict(SparkConf().getAll()), **builder._options}  # noqa: SLF001 what has been set so far is nowhere else


def _made(name: str) -> tuple[Path | None, dict[str, str]]:
    """Return Spark's own directory for the job of this name, and Holdfast's settings. Raises ``HoldfastError``."""
    links = links_in_mount()
    try:
        local = local_directory(directory_name(name))
    except RefusedError as problem:
        _log.warning("this job has no working directory: %s", problem)
        return None, {**state_settings(), **links, **STEP_ASIDE}
    return local, {**settings(local), **links, **STEP_ASIDE}


if __name__ == "__main__":
    main()
