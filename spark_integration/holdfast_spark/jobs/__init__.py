"""Jobs that look after stores which outgrow one machine. Each is a command, for ``spark-submit`` and for plain Python.

``inventory`` lists a store into Parquet; the others work from that: ``orphans`` plans a sweep, ``scrub`` checks digests,
``verify`` says what can be restored,
``warm`` says which node should hold what, ``usage`` who uses how much. ``docs/jobs.md`` shows them.

What a store's objects *are* is told by the same pure code that the daemon uses (``holdfast.checkpoints``), run by
executors. Nothing here collects objects on the driver.
"""
