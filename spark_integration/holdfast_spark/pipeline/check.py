"""``python -m holdfast_spark.pipeline.check``: compare what the batches add up to with a plain batch computation.

Prints one JSON object: ``subjects``, ``flights`` (counted over routes), ``missing`` and ``wrong`` (rows of the batch answer
that the streaming answer lacks, and the reverse). Exits with 1 unless both are 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from holdfast_spark.pipeline import flights
from holdfast_spark.pipeline.local import stay_on_this_machine


def main() -> None:
    """Compare, print, exit."""
    parser = argparse.ArgumentParser(prog="python -m holdfast_spark.pipeline.check", description=__doc__)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    stay_on_this_machine()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    expected = flights.aggregate(flights.arrived(spark, options.input)).cache()
    found = flights.latest(spark, options.output).select(*expected.columns).cache()
    result = {
        "subjects": expected.count(),
        "flights": expected.where("subject like 'route %'").agg(f.sum("flights")).collect()[0][0],
        "missing": expected.exceptAll(found).count(),
        "wrong": found.exceptAll(expected).count(),
    }
    spark.stop()
    sys.stdout.write(json.dumps(result) + "\n")
    sys.exit(1 if result["missing"] or result["wrong"] else 0)


main()
