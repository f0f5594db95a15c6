"""Checkpoints: the files that they consist of, how these refer to each other, and which of them can be deleted.

From the lowest layer to the highest:

- ``manifests``, ``references``, ``examination``, ``plans``: the types that formats and their callers exchange;
- ``formats``: one package for each format, behind one interface, and the registry of them;
- ``reachability``: sweeps, drops and the census of a listing, for whatever formats there are;
- ``sweeps``: plans that are made of a store, kept, shown and carried out;
- ``restoring``: verifying, copying and rewinding checkpoints.

All but the last two are pure: listings and bytes come in, plans go out.
"""
