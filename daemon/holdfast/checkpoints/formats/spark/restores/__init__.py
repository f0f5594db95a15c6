"""The files that a restart of a query reads, for each batch that is retained, and whether they are there and whole.

``location`` has the files, ``logs`` the driver's own, ``sources`` the logs of sources, ``operators`` which stores there are,
``state`` what one store needs for a version, ``batches`` puts these together.
"""

from holdfast.checkpoints.formats.spark.restores.batches import restores
