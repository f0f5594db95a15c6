"""What checkpoints are made of: which names refer to which others."""

from holdfast.checkpoints.references import is_manifest, references

__all__ = ["is_manifest", "references"]
