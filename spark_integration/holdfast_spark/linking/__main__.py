"""Print the path of the jar, for a properties file."""

import sys

from holdfast_spark.linking import jar_path

jar = jar_path()
if jar is None:
    sys.exit("holdfast was built without holdfast-spark.jar; building it takes a JDK")
sys.stdout.write(f"{jar}\n")
