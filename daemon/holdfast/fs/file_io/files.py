"""Open files and what is done with them."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.fs.file_io.arriving import ArrivingFiles, LocalFiles
from holdfast.fs.file_io.cache_miss import CacheMiss
from holdfast.fs.file_io.commit import Committer
from holdfast.fs.file_io.digest_check import DigestCheck
from holdfast.fs.file_io.open import Opening
from holdfast.fs.file_io.open_files import HandleTable, OpenFiles
from holdfast.fs.file_io.open_limits import OpenLimits
from holdfast.fs.file_io.passthrough import Passthrough
from holdfast.fs.file_io.prefetch import Prefetcher
from holdfast.fs.file_io.read_write import ReadWrite
from holdfast.fs.file_io.release import Background, Releasing
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.integrity.verifier import Verifier
from holdfast.fs.remote_view.views import Views
from holdfast.fs.writeback.sending import Sending


class Files:
    """Puts the parts of ``file_io`` together. ``closed`` is called with each node after its last handle."""

    def __init__(
        self, base: Foundation, views: Views, sending: Sending, verifier: Verifier, closed: Callable[[Node], None]
    ) -> None:
        parts = base.parts
        self.background = Background()
        self.handles = HandleTable(parts.session)
        self.passthrough = Passthrough(base)
        self.passthrough_writes = self.passthrough.writes
        self.open_limits = OpenLimits(parts.config.limits.open_files_per_user, base.rare_events)
        self.files = OpenFiles(base, views.times, self.passthrough, self.handles, self.open_limits, closed)
        self.check = DigestCheck(base, verifier)
        self.committer = Committer(base, sending, self.passthrough_writes, self.check)
        misses = CacheMiss(base, views.revalidation)
        arriving = ArrivingFiles(base, misses, self.passthrough)
        self.local_files = LocalFiles(misses, arriving, self.check, base.locks)
        self.prefetcher = Prefetcher(base)
        self.opening = Opening(base, views.guard, self.files, self.local_files, self.prefetcher)
        self.read_write = ReadWrite(base, self.files, self.local_files, self.handles)
        self.releasing = Releasing(base, self.files, self.handles, self.passthrough_writes, self.committer, self.background)
