"""Print the path of the file that Spark's own ``conf/spark-env.sh`` should source."""

import sys

from holdfast_spark.env import spark_env_path

sys.stdout.write(f"{spark_env_path()}\n")
