"""Sweeps and drops of a store: plans that are made, kept, shown and carried out.

- ``root_listing``, ``several_at_once``, ``object_stream``: what a plan is made of, from the store;
- ``planning``: from a question (sweep this, drop that) to a plan;
- ``plan_format``, ``plan_store``: plans as JSON lines, and where they are kept; they need nothing of the daemon;
- ``revalidation``, ``execution``: the second look before anything is deleted, and the deletion;
- ``periodic``: sweeps that the daemon makes by itself.
"""
