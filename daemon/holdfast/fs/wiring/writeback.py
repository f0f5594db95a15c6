"""Assembly of ``writeback`` and ``integrity``."""

from __future__ import annotations

from holdfast.fs.foundation import Foundation
from holdfast.fs.integrity.index_rebuild import IndexRebuild
from holdfast.fs.integrity.scrubber import Scrubber
from holdfast.fs.integrity.verifier import Verifier
from holdfast.fs.wiring.remote_view import ViewParts
from holdfast.fs.writeback.object_versions import ObjectVersions
from holdfast.fs.writeback.publisher import Publisher
from holdfast.fs.writeback.remote_deletes import RemoteDeletes
from holdfast.fs.writeback.unsent_files import UnsentFiles
from holdfast.fs.writeback.writeback_queue import WritebackQueue


class SendingParts:
    """Sending and deleting objects, and checking their copies."""

    def __init__(self, base: Foundation, views: ViewParts) -> None:
        parts = base.parts
        store, index = parts.store, parts.index
        self.versions = ObjectVersions(base.view, index.entries)
        self.remote_deletes = RemoteDeletes(base.view, self.versions, index.marks, store.tree, base.fetcher)
        self.publisher = Publisher(
            base.view,
            self.remote_deletes,
            views.hints,
            base.nodes,
            store.stamps,
            index,
            base.uploader,
            views.times,
        )
        self.queue = WritebackQueue(
            self.publisher,
            base.policy,
            base.nodes,
            store.tree,
            index.entries,
            base.copies,
            parts.events,
            base.hot,
        )
        self.unsent = UnsentFiles(index.entries, base.nodes, parts.zones, store.tree, base.view, self.queue)
        integrity = parts.config.integrity
        self.verifier = Verifier(
            base.policy,
            base.view,
            base.nodes,
            store.tree,
            index,
            base.updates,
            base.copies,
            parts.events,
            base.hashing,
            on_first_open=integrity.verify_on_first_open,
        )
        self.scrubber = Scrubber(self.verifier, index.entries, parts.events, int(integrity.scrub_bytes_per_second))
        self.rebuild = IndexRebuild(self.verifier, self.queue, base.policy, base.updates, store.tree, index, parts.events)
