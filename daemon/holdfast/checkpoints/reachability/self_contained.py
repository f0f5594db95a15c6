"""Checkpoints that can be copied: all that they refer to lies beside their manifest, and is named relative to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.checkpoints.examination import Asking, Examination, Wanted
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import Role
from holdfast.checkpoints.manifests import Manifest, Unreadable
from holdfast.checkpoints.plans import Kept, Listed
from holdfast.checkpoints.reachability.division import Division
from holdfast.checkpoints.reachability.tree import Tree
from holdfast.checkpoints.references import ReferenceKind
from holdfast.errors import PlanError
from holdfast.system.text import shown


def self_contained(listing: Iterable[Listed], formats: Formats = FORMATS) -> Examination[list[Listed] | None]:
    """Begin to look for the files of the checkpoint whose directory was listed: its manifest, and all that it refers to.

    The manifest comes last; None when there is none. Raises ``PlanError`` when it can't be read, or the checkpoint needs
    something that does not lie beside it.
    """
    listing = list(listing)
    return Examination(_self_contained(listing, Division(listing, formats)))


def _self_contained(listing: list[Listed], division: Division) -> Asking[list[Listed] | None]:
    for tree in division.trees:
        for listed, name in tree.files:
            if name.role is Role.MANIFEST and b"/" not in listed.name:
                answers = yield [Wanted(listed.name, tree.manifest, listed.size_bytes)]
                return [*_beside(tree, name, answers[listed.name], listing), listed]
    return None


def _beside(tree: Tree[Any], name: Any, manifest: Manifest, listing: list[Listed]) -> list[Listed]:
    """Return the files that a manifest refers to. Raises ``PlanError``."""
    references = tree.layout.references_of(name, manifest)
    if isinstance(references, Kept) or isinstance(manifest, Unreadable):
        raise PlanError(f"{shown(name.name)}: {references.why if isinstance(references, Kept) else manifest}")
    there = {listed.name: listed for listed in listing if not listed.is_directory}
    found = []
    for reference in sorted(references, key=lambda each: (each.kind is ReferenceKind.RELATIVE, each.path)):
        if reference.kind is not ReferenceKind.RELATIVE:
            raise PlanError(
                f"{shown(name.name)} names {shown(reference.path)} by an absolute path, so a copy would read the original's "
                f"files: {tree.layout.can_be_copied}"
            )
        file = there.get(reference.path)
        if file is None or file.size_bytes < reference.least_bytes:
            raise PlanError(f"{shown(name.name)} needs {shown(reference.path)}, which does not lie whole beside it")
        found.append(file)
    return found
