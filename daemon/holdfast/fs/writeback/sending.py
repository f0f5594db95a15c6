"""The sending and deleting of objects."""

from __future__ import annotations

from holdfast.fs.foundation import Foundation
from holdfast.fs.remote_view.views import Views
from holdfast.fs.writeback.publisher import Publisher
from holdfast.fs.writeback.remote_deletes import RemoteDeletes
from holdfast.fs.writeback.unsent_files import UnsentFiles
from holdfast.fs.writeback.writeback_queue import WritebackQueue


class Sending:
    """Puts the parts of ``writeback`` together."""

    def __init__(self, base: Foundation, views: Views) -> None:
        self.remote_deletes = RemoteDeletes(base)
        self.publisher = Publisher(base, views, self.remote_deletes)
        self.queue = WritebackQueue(base, self.publisher)
        self.unsent = UnsentFiles(base, self.queue)
