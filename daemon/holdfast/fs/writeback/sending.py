"""The sending and deleting of objects."""

from __future__ import annotations

from holdfast.fs.foundation import Foundation
from holdfast.fs.remote_view.views import Views
from holdfast.fs.writeback.object_versions import ObjectVersions
from holdfast.fs.writeback.publisher import Publisher
from holdfast.fs.writeback.remote_deletes import RemoteDeletes
from holdfast.fs.writeback.unsent_files import UnsentFiles
from holdfast.fs.writeback.writeback_queue import WritebackQueue


class Sending:
    """Puts the parts of ``writeback`` together."""

    def __init__(self, base: Foundation, views: Views) -> None:
        store, index, nodes = base.parts.store, base.parts.index, base.nodes
        self.versions = ObjectVersions(base.view, index.entries)
        self.remote_deletes = RemoteDeletes(base.view, self.versions, index.marks, store.tree, base.fetcher)
        self.publisher = Publisher(
            base.view, self.remote_deletes, views.hints, nodes, store.stamps, index, base.uploader, views.times
        )
        self.queue = WritebackQueue(
            self.publisher, base.policy, nodes, store.tree, index.entries, base.copies, base.parts.events, base.hot
        )
        self.unsent = UnsentFiles(index.entries, nodes, base.parts.zones, store.tree, base.view, self.queue)
