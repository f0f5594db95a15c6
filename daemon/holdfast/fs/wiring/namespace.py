"""Assembly of ``namespace``."""

from __future__ import annotations

import os

from holdfast.fs.foundation import Foundation
from holdfast.fs.namespace.attr_ops import AttrOps
from holdfast.fs.namespace.create import Creation
from holdfast.fs.namespace.large_directories import LargeDirectories
from holdfast.fs.namespace.listing import Listings
from holdfast.fs.namespace.lookup import Lookup
from holdfast.fs.namespace.lost_names import LostNames
from holdfast.fs.namespace.mkdir_mknod import DirectoryRules, Making
from holdfast.fs.namespace.new_entries import NewEntries
from holdfast.fs.namespace.object_copies import ObjectCopies
from holdfast.fs.namespace.rmdir import Rmdir
from holdfast.fs.namespace.unlink import Unlinking
from holdfast.fs.namespace.xattrs import ExtendedAttributes
from holdfast.fs.wiring.file_io import FileParts
from holdfast.fs.wiring.remote_view import ViewParts
from holdfast.fs.wiring.renames import RenameParts
from holdfast.fs.wiring.writeback import SendingParts


class NameParts:
    """Operations by name, and on attributes."""

    def __init__(
        self, base: Foundation, views: ViewParts, sending: SendingParts, files: FileParts, rules: DirectoryRules
    ) -> None:
        self._find(base, views, files)
        self._make(base, views, files, rules)
        self._remove(base, views, sending)
        renames = RenameParts(base, views, sending, files, self._lost_names)
        self.linking, self.renaming = renames.linking, renames.renaming
        self.attrs = AttrOps(
            base.directories,
            base.view,
            views.revalidation,
            views.times,
            files.files,
            files.opening,
            files.read_write,
            files.committer,
            files.local_files,
            files.passthrough_writes,
            base.updates,
            base.parts.store,
            base.quotas,
            base.hot,
        )
        self.xattrs = ExtendedAttributes(
            base.directories, files.local_files, base.updates, base.parts.session.records, base.hot, base.ordinary_user
        )

    def _find(self, base: Foundation, views: ViewParts, files: FileParts) -> None:
        parts = base.parts
        object_copies = ObjectCopies(parts.index.entries, base.copies, parts.store.tree, views.times)
        self.lookup = Lookup(
            base.directories,
            base.nodes,
            base.policy,
            base.ttl,
            base.view,
            views.visibility,
            views.guard,
            views.revalidation,
            views.hints,
            object_copies,
            parts.events,
            views.times,
        )
        self.listings = Listings(
            base.directories,
            base.nodes,
            base.policy,
            base.view,
            views.visibility,
            self.lookup,
            object_copies,
            base.copies,
            parts.index.marks,
            base.ttl,
            files.prefetcher,
        )

    def _make(self, base: Foundation, views: ViewParts, files: FileParts, rules: DirectoryRules) -> None:
        parts = base.parts
        new = NewEntries(base.policy, base.view, views.visibility, base.ordinary_user, is_root=os.geteuid() == 0)
        self.creation = Creation(
            new,
            base.directories,
            base.nodes,
            base.view,
            views.revalidation,
            views.hints,
            parts.index,
            base.updates,
            base.copies,
            base.fetcher,
            files.handing_out,
            views.guard,
            files.open_limits,
        )
        self.making = Making(
            new,
            base.directories,
            base.nodes,
            parts.zones,
            base.view,
            parts.index,
            base.updates,
            rules,
            views.guard,
        )

    def _remove(self, base: Foundation, views: ViewParts, sending: SendingParts) -> None:
        parts = base.parts
        self._lost_names = LostNames(
            base.directories, base.nodes, base.unlinks, base.updates, base.copies, parts.store, base.hot
        )
        self.unlinking = Unlinking(
            base.directories, base.nodes, base.policy, views.hints, sending.remote_deletes, self._lost_names, base.hot
        )
        self.removing = Rmdir(
            base.directories,
            base.nodes,
            parts.zones,
            parts.store.tree,
            base.view,
            views.whiteouts,
            views.hints,
            parts.index.marks,
            base.ttl,
            LargeDirectories(parts.store.freeing),
        )
