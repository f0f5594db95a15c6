"""Sweeps and drops of a store: plans that are made, kept, shown and carried out.

- ``manifest_reading``, ``object_stream``: reading the manifests that a plan is made from;
- ``planning``: from a question (sweep this, drop that), by a listing of the store, to a plan;
- ``plan_format``, ``plan_store``: plans as JSON lines, and where they are kept; they need nothing of the daemon;
- ``revalidation``, ``execution``: the second look before anything is deleted, and the deletion;
- ``periodic``: sweeps that the daemon makes by itself.
"""
