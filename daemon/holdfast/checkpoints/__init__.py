"""Checkpoints: what their names say, what refers to what, and what may go.

Lowest first:

- ``manifests``, ``references``, ``examination``, ``plans``: the words in which formats and drivers speak to each other;
- ``formats``: one package for each format, behind one interface, and the registry of them;
- ``reachability``: sweeps, drops and the census of a listing, for whatever formats there are;
- ``sweeps``: plans that are made of a store, kept, shown and carried out;
- ``restoring``: what is done to go on from a checkpoint.

All but the last two is pure: listings and bytes come in, plans go out.
"""
