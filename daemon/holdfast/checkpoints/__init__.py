"""Checkpoints of Spark, Flink and Holdfast: what their names say, what refers to what, and what may go.

``layouts`` reads names, ``manifests`` reads the files that list others, ``reachability`` makes plans of both. All of it is
pure: listings and bytes come in, plans go out.
"""

from holdfast.checkpoints.references import is_manifest, references

__all__ = ["is_manifest", "references"]
