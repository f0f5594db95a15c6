"""The judgement on retained checkpoints below a root: the files that a restart from each reads, and whether they are there.

``spoilt`` are names of objects that are known to have wrong content: a restart may do without them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from holdfast.checkpoints.examination import Asking, Examination, Wanted, together
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import EngineVersion, Fault, N, Restore, Role, TreeName
from holdfast.checkpoints.manifests import Manifest, Unreadable, WholeLength
from holdfast.checkpoints.plans import Kept, Listed
from holdfast.checkpoints.reachability.division import Division
from holdfast.checkpoints.reachability.tree import Tree
from holdfast.checkpoints.references import Reference, ReferenceKind
from holdfast.errors import NoSuchPlanError, PlanError
from holdfast.system.text import shown

_BROKEN = "its bytes are not those that its digest was made of"


class Place(NamedTuple):
    """The things to judge: all below ``root``, or the batch ``batch`` of the query there, or the checkpoint called ``name``.

    With ``is_last``, the batch is judged as if the query had ended after it.
    """

    root: bytes
    batch: int | None = None
    name: bytes | None = None
    is_last: bool = False


def places_of(path: bytes, batch: int | None, formats: Formats = FORMATS) -> list[Place]:
    """Return where to look for what a user means by ``path``, first what is likelier. Raises ``PlanError``.

    A checkpoint may refer to files of other jobs: these are looked for beside its job.
    """
    for layout in formats.locations:
        named = layout.batch_of(path)
        if named is not None:
            if batch is not None and batch != named.number:
                raise PlanError(f"{shown(path)} is batch {named.number}, not {batch}")
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
    listing: Iterable[Listed],
    batch: int | None = None,
    spoilt: Collection[bytes] = (),
    formats: Formats = FORMATS,
    *,
    is_last: bool = False,
    engine: EngineVersion | None = None,
) -> Examination[list[Restore]]:
    """Begin to judge all batches, checkpoints and savepoints below a root; with ``batch`` only that one of its one query.

    With ``is_last`` the batch is judged as if the query had ended after it: what later ones have left, such as offsets that
    a power cut has emptied, is none of its reads. ``engine`` is the version of the engine that restarts; None: the newest.
    Raises ``PlanError`` where a batch is named and there is not one query, or it has no such batch.
    """
    division = Division(listing, formats, damaged=True)
    if batch is not None and len(division.locations) != 1:
        if not division.locations:
            raise NoSuchPlanError("there is no checkpoint location here to have a batch")
        raise PlanError(f"there are {len(division.locations)} checkpoint locations here: name one to ask for a batch")
    if batch is not None and is_last:
        ((location, (layout, below)),) = division.locations.items()
        later = {listed.name for step in formats.locations[layout].later(location, below, batch) for listed in step}
        listing = [listed for listed in below if listed.name not in later]
        return Examination(formats.locations[layout].restores(location, listing, batch, spoilt, engine))
    return Examination(_restores(division, batch, spoilt, formats, engine))


def _restores(
    division: Division, batch: int | None, spoilt: Collection[bytes], formats: Formats, engine: EngineVersion | None
) -> Asking[list[Restore]]:
    found: list[Restore] = []
    for location, (layout, below) in sorted(division.locations.items()):
        found += yield from formats.locations[layout].restores(location, below, batch, spoilt, engine)
    if batch is None:
        of_trees = yield from together([_of_tree(tree, division.unknown, spoilt) for tree in division.trees])
        found += [restore for of_tree in of_trees for restore in of_tree]
    return found


def _of_tree(tree: Tree[N], unknown: Iterable[Listed], spoilt: Collection[bytes]) -> Asking[list[Restore]]:
    """Judge the checkpoints of a tree by their manifests. Files of a copy, in a directory of any name, are ``unknown``."""
    manifests = [(listed, name) for listed, name in tree.files if name.role is Role.MANIFEST]
    answers = yield [
        Wanted(listed.name, tree.manifest, listed.size_bytes) for listed, _ in manifests if listed.name not in spoilt
    ]
    there = _There(chain((listed for listed, _ in tree.files), unknown))
    readable = [(name, answers[listed.name]) for listed, name in manifests if listed.name in answers]
    lengths = yield list({wanted.name: wanted for wanted in _lengths_wanted(tree, readable, there)}.values())
    found = []
    for listed, name in manifests:
        retained = tree.layout.restorable(name, answers.get(listed.name))
        if retained is not None:
            faults, reads = _judged(tree, listed, name, answers.get(listed.name), there, spoilt, lengths)
            newest = max(tree.completions(name).times_ns, default=None)
            is_newest = name.checkpoint is not None and name.checkpoint == newest
            found.append(Restore(*retained, faults, reads=(reads,), is_newest=is_newest))
    return sorted(found, key=lambda each: each.name)


class _There:
    """The files below the root, by name, by the last component of the name, and by the names of directories above."""

    def __init__(self, files: Iterable[Listed]) -> None:
        self._by_name: dict[bytes, Listed] = {}
        self._files: dict[bytes, list[Listed]] = {}
        self._directories: dict[bytes, list[Listed]] = {}
        for listed in files:
            *above, last = listed.name.split(b"/")
            self._by_name[listed.name] = listed
            self._files.setdefault(last, []).append(listed)
            for directory in above:
                self._directories.setdefault(directory, []).append(listed)

    def named(self, reference: Reference, manifest: TreeName) -> Sequence[Listed]:
        """Return what a manifest refers to.

        A relative name is below the manifest's directory or the job's. An absolute one has the store's own root before it.
        """
        if reference.kind is ReferenceKind.RELATIVE:
            names = {_below(above, reference.path) for above in (manifest.name.rpartition(b"/")[0], manifest.job)}
            return [self._by_name[each] for each in sorted(names & self._by_name.keys())]
        found = self._directories if reference.kind is ReferenceKind.DIRECTORY else self._files
        return found.get(reference.last_component, ())


def _below(directory: bytes, name: bytes) -> bytes:
    return b"%s/%s" % (directory, name) if directory else name


def _lengths_wanted(tree: Tree[N], manifests: Iterable[tuple[N, Manifest]], there: _There) -> Iterator[Wanted]:
    """Yield the files that may be compressed: their sizes differ from those in their manifests. Some may come twice."""
    for name, manifest in manifests:
        references = () if isinstance(manifest, Unreadable) else tree.layout.references_of(name, manifest)
        for reference in () if isinstance(references, Kept) else references:
            if reference.length is not None:
                for file in there.named(reference, name):
                    if file.size_bytes != reference.least_bytes:
                        yield Wanted(file.name, reference.length, file.size_bytes)


def _fault(file: Listed, least_bytes: int, spoilt: Collection[bytes], length: Manifest | None) -> Fault | None:
    if file.name in spoilt:
        return Fault(file.name, _BROKEN)
    if isinstance(length, Unreadable):
        return Fault(file.name, str(length))
    size_bytes = length.size_bytes if isinstance(length, WholeLength) else file.size_bytes
    if size_bytes < least_bytes:  # segments are parts
        return Fault(file.name, f"it has {size_bytes} bytes instead of {least_bytes}")
    return None


def _judged(
    tree: Tree[N],
    listed: Listed,
    name: N,
    manifest: Manifest | None,
    there: _There,
    spoilt: Collection[bytes],
    lengths: Mapping[bytes, Manifest],
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
        files = there.named(reference, name)
        reads += [file.name for file in files]
        if not files and reference.kind is not ReferenceKind.DIRECTORY:  # those of file merging may be empty
            faults.append(Fault(reference.path, "it is not there", is_missing=True))
        for file in files:
            fault = _fault(file, reference.least_bytes, spoilt, lengths.get(file.name) if reference.length else None)
            if fault is not None:
                faults.append(fault)
    return tuple(faults), tuple(reads)
