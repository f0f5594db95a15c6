"""Which retained checkpoints below a root can be restored: what a restart from each would read, and whether it is there.

``spoilt`` are names of objects whose bytes are known to be others than they should: a restart may do without them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from holdfast.checkpoints.examination import Asking, Examination, Wanted, together
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import Fault, N, Restore, Role, TreeName
from holdfast.checkpoints.manifests import Manifest, Unreadable
from holdfast.checkpoints.plans import Kept, Listed
from holdfast.checkpoints.reachability.division import Division
from holdfast.checkpoints.reachability.tree import Tree
from holdfast.checkpoints.references import Reference, ReferenceKind
from holdfast.errors import PlanError

_BROKEN = "its bytes are not those that its digest was made of"


class Place(NamedTuple):
    """What is to be judged: all below ``root``, or the batch ``batch`` of the query there, or what is called ``name``."""

    root: bytes
    batch: int | None = None
    name: bytes | None = None


def places_of(path: bytes, batch: int | None, formats: Formats = FORMATS) -> list[Place]:
    """Return where to look for what a user means by ``path``, first what is likelier. Raises ``PlanError``.

    A checkpoint may refer to files of other jobs: these are looked for beside its job.
    """
    for layout in formats.locations:
        named = layout.batch_of(path)
        if named is not None:
            if batch is not None and batch != named.number:
                raise PlanError(f"{path.decode(errors='backslashreplace')} is batch {named.number}, not {batch}")
            return [Place(named.location, named.number)]
    if batch is not None:
        return [Place(path, batch)]
    for tree in formats.trees:
        checkpoint: TreeName | None = tree.checkpoint_named(path)
        if checkpoint is not None:
            root = checkpoint.job.rpartition(b"/")[0]
            return [Place(root, None, path[len(root) + 1 :] if root else path)]
    above, _, last = path.rpartition(b"/")
    return [Place(path), Place(above, None, last)] if path else [Place(path)]


def restores(
    listing: Iterable[Listed], batch: int | None = None, spoilt: Collection[bytes] = (), formats: Formats = FORMATS
) -> Examination[list[Restore]]:
    """Begin to judge all batches, checkpoints and savepoints below a root; with ``batch`` only that one of its one query.

    Raises ``PlanError`` where a batch is named and there is not one query, or it has no such batch.
    """
    division = Division(listing, formats, damaged=True)
    if batch is not None and len(division.locations) != 1:
        raise PlanError(f"there are {len(division.locations)} checkpoint locations here: name one to ask for a batch")
    return Examination(_restores(division, batch, spoilt, formats))


def _restores(division: Division, batch: int | None, spoilt: Collection[bytes], formats: Formats) -> Asking[list[Restore]]:
    found: list[Restore] = []
    for location, (layout, below) in sorted(division.locations.items()):
        found += yield from formats.locations[layout].restores(location, below, batch, spoilt)
    if batch is None:
        of_trees = yield from together([_of_tree(tree, spoilt) for tree in division.trees])
        found += [restore for of_tree in of_trees for restore in of_tree]
    return found


def _of_tree(tree: Tree[N], spoilt: Collection[bytes]) -> Asking[list[Restore]]:
    manifests = [(listed, name) for listed, name in tree.files if name.role is Role.MANIFEST]
    answers = yield [
        Wanted(listed.name, tree.manifest, listed.size_bytes) for listed, _ in manifests if listed.name not in spoilt
    ]
    there = _There(listed for listed, _ in tree.files)
    found = []
    for listed, name in manifests:
        retained = tree.layout.restorable(name)
        if retained is not None:
            faults, reads = _judged(tree, listed, name, answers.get(listed.name), there, spoilt)
            newest = max(tree.completions(name).times_ns, default=None)
            is_newest = name.checkpoint is not None and name.checkpoint == newest
            found.append(Restore(*retained, faults, reads=(reads,), is_newest=is_newest))
    return sorted(found, key=lambda each: each.name)


class _There:
    """What is below the root, by the last component of each name, and by the names of directories."""

    def __init__(self, files: Iterable[Listed]) -> None:
        self._files: dict[bytes, list[Listed]] = {}
        self._directories: dict[bytes, list[Listed]] = {}
        for listed in files:
            *above, last = listed.name.split(b"/")
            self._files.setdefault(last, []).append(listed)
            for directory in above:
                self._directories.setdefault(directory, []).append(listed)

    def named(self, reference: Reference) -> Sequence[Listed]:
        """Return what a manifest refers to."""
        found = self._directories if reference.kind is ReferenceKind.DIRECTORY else self._files
        return found.get(reference.last_component, ())


def _fault(file: Listed, least_bytes: int, spoilt: Collection[bytes]) -> Fault | None:
    if file.name in spoilt:
        return Fault(file.name, _BROKEN)
    if file.size_bytes < least_bytes:  # a changelog's files have a byte more, and segments are parts
        return Fault(file.name, f"it has {file.size_bytes} bytes instead of {least_bytes}")
    return None


def _judged(
    tree: Tree[N], listed: Listed, name: N, manifest: Manifest | None, there: _There, spoilt: Collection[bytes]
) -> tuple[tuple[Fault, ...], tuple[bytes, ...]]:
    if manifest is None:
        return (Fault(listed.name, _BROKEN),), ()
    if isinstance(manifest, Unreadable):
        return (Fault(listed.name, str(manifest)),), ()
    references = tree.layout.references_of(name, manifest)
    if isinstance(references, Kept):
        return (Fault(references.scope, references.why),), ()
    faults: list[Fault] = []
    reads = [listed.name]
    for reference in sorted(references, key=lambda each: each.path):
        files = there.named(reference)
        reads += [file.name for file in files]
        if not files and reference.kind is not ReferenceKind.DIRECTORY:  # those of file merging may be empty
            faults.append(Fault(reference.path, "it is not there", is_missing=True))
        faults += [fault for file in files if (fault := _fault(file, reference.least_bytes, spoilt)) is not None]
    return tuple(faults), tuple(reads)
