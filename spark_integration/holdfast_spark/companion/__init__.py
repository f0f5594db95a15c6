"""``holdfast-spark-driver``: the process beside a driver without Python, which decides for it what PySpark's drivers decide.

The plugin in ``holdfast-spark.jar`` starts it, tells it of queries on its standard input, and answers questions about Spark
that it asks on its standard output. So placement has one implementation, in Python, and the JVM needs no Unix sockets, which
Java has from 16 on. It reads the checkpoint and asks the daemon as the driver's user, and ends with its input.
"""
