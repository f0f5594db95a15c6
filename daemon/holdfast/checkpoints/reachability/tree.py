"""Files that manifests refer to: mark what is referred to, then judge what is not.

Jobs may refer to each other's files, so all manifests of a layout below the root are read before anything is judged; one
that the layout can't do without stops the judgement of everything of that layout. References are compared by their last
component: a file is reached if its own name, or the name of a directory above it, is the last component of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Generic, NamedTuple

from holdfast.checkpoints.examination import Asking, Wanted
from holdfast.checkpoints.formats.interface import Completions, N, Role, TreeLayout
from holdfast.checkpoints.manifests import ManifestKind
from holdfast.checkpoints.plans import Kept, Listed, Phase, PlanBuilder, Reason
from holdfast.checkpoints.references import ReferenceKind


class Tree(Generic[N]):
    """The files and directories of one layout that were listed below a root. ``manifest`` is the kind of its manifests."""

    def __init__(self, layout: TreeLayout[N], manifest: ManifestKind) -> None:
        self.layout = layout
        self.manifest = manifest
        self.files: list[tuple[Listed, N]] = []
        self.directories: list[tuple[Listed, N]] = []
        self._jobs: defaultdict[bytes, Completions] = defaultdict(Completions)

    def add(self, listed: Listed, name: N) -> None:
        """Take up a file or directory."""
        if listed.is_directory:
            self.directories.append((listed, name))
            return
        self.files.append((listed, name))
        if name.completes and name.checkpoint is not None:
            self._jobs[name.job].times_ns[name.checkpoint] = listed.mtime_ns

    def completions(self, name: N) -> Completions:
        """Return the complete checkpoints of the job of ``name``."""
        return self._jobs[name.job]


class Reached(NamedTuple):
    """The last components of all that is referred to."""

    files: frozenset[bytes]
    directories: frozenset[bytes]

    def reaches(self, name: bytes) -> bool:
        """Return whether ``name`` is referred to, or is in a directory that is."""
        *directories, last = name.split(b"/")
        return last in self.files or not self.directories.isdisjoint(directories)


def sweep_tree(tree: Tree[N], builder: PlanBuilder) -> Asking[None]:
    """Plan what can be deleted of a layout below a root."""
    reached = yield from _reached(tree, frozenset(), builder)
    if reached is None:
        return
    silent_since: defaultdict[bytes, int] = defaultdict(int)
    for listed, name in tree.files:
        if name.is_appended:
            directory = listed.name.rpartition(b"/")[0]
            silent_since[directory] = max(silent_since[directory], listed.mtime_ns)
    for listed, name in tree.files:
        if name.role is not Role.CANDIDATE:
            builder.retain([listed.name])
        elif not reached.reaches(listed.name):
            silent_since_ns = silent_since[listed.name.rpartition(b"/")[0]] if name.is_appended else 0
            tree.layout.sweep_unreferenced(listed, name, tree.completions(name), silent_since_ns, builder)


def drop_from_tree(tree: Tree[N], dropped: Collection[bytes], builder: PlanBuilder) -> Asking[None]:
    """Plan to drop checkpoints, by the names of their directories: their manifests first, then all that only they reach.

    Age does not matter, for it was asked for. What they share with others, or may have shared, is left for a sweep.
    """
    reached = yield from _reached(tree, dropped, builder)
    if reached is None:
        return
    for listed, name in tree.files:
        if name.checkpoint is None or name.checkpoint_name not in dropped:
            continue
        if name.role is Role.MANIFEST:
            builder.add(listed, Reason.DROPPED, tree.layout.about(name), Phase.MANIFEST)
        elif name.role is Role.CANDIDATE and not reached.reaches(listed.name):
            builder.add(listed, Reason.DROPPED, tree.layout.about(name))


def superfluous_directories(tree: Tree[N], builder: PlanBuilder) -> list[tuple[Listed, str]]:
    """Return the directories that nothing is going to be written into any more, each with what it was for."""
    return [
        (listed, tree.layout.about(name))
        for listed, name in tree.directories
        if tree.layout.is_superfluous(listed, name, tree.completions(name), builder)
    ]


def _reached(tree: Tree[N], dropped: Collection[bytes], builder: PlanBuilder) -> Asking[Reached | None]:
    """Read all manifests but those of the dropped checkpoints. None when the layout can't do without one of them."""
    manifests = [
        (listed, name)
        for listed, name in tree.files
        if name.role is Role.MANIFEST and not (name.checkpoint is not None and name.checkpoint_name in dropped)
    ]
    answers = yield [Wanted(listed.name, tree.manifest, listed.size_bytes) for listed, _ in manifests]
    files: set[bytes] = set()
    directories: set[bytes] = set()
    whole = True
    for listed, name in manifests:
        found = tree.layout.references_of(name, answers[listed.name])
        if isinstance(found, Kept):
            builder.keep(found)
            whole = False
            continue
        for reference in found:
            of_kind = directories if reference.kind is ReferenceKind.DIRECTORY else files
            of_kind.add(reference.last_component)
    reached = Reached(frozenset(files), frozenset(directories))
    builder.retain(listed.name for listed, _ in tree.files if not whole or reached.reaches(listed.name))
    return reached if whole else None
