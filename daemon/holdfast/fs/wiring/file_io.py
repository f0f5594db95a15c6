"""Assembly of ``file_io``."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.fs.file_io.arriving import ArrivingFiles
from holdfast.fs.file_io.background import Background
from holdfast.fs.file_io.cache_miss import CacheMiss
from holdfast.fs.file_io.commit import Committer
from holdfast.fs.file_io.digest_check import DigestCheck
from holdfast.fs.file_io.handle_table import HandleTable
from holdfast.fs.file_io.local_files import LocalFiles
from holdfast.fs.file_io.new_handle import HandOut
from holdfast.fs.file_io.open import Opening
from holdfast.fs.file_io.open_files import OpenFiles
from holdfast.fs.file_io.open_limits import OpenLimits
from holdfast.fs.file_io.passthrough import Passthrough
from holdfast.fs.file_io.passthrough_writes import PassthroughWrites
from holdfast.fs.file_io.prefetch import Prefetcher
from holdfast.fs.file_io.read_write import ReadWrite
from holdfast.fs.file_io.release import Releasing
from holdfast.fs.file_io.separation import Separation
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.wiring.remote_view import ViewParts
from holdfast.fs.wiring.writeback import SendingParts


class FileParts:
    """Open files. ``file_closed`` is called with each node after its last handle."""

    def __init__(
        self, base: Foundation, views: ViewParts, sending: SendingParts, file_closed: Callable[[Node], None]
    ) -> None:
        parts = base.parts
        store, index, remote = parts.store, parts.index, parts.config.remote
        self.background = Background()
        self.handles = HandleTable(parts.session)
        self.passthrough_writes = PassthroughWrites(
            base.nodes, index.entries, base.updates, store.stamps, store.tree, base.hashing, base.disk
        )
        self.passthrough = passthrough = Passthrough(
            base.kernel.backing_files, self.passthrough_writes, base.policy, base.directories, base.room, base.ordinary_user
        )
        self.open_limits = OpenLimits(parts.config.limits.open_files_per_user, base.rare_events)
        self.files = OpenFiles(
            base.nodes,
            base.directories,
            base.updates,
            passthrough,
            self.passthrough_writes,
            self.handles,
            store.orphanage,
            self.open_limits,
            base.hot,
            store.freeing,
            views.times,
            file_closed,
        )
        self.check = DigestCheck(sending.verifier, base.policy, base.directories)
        self.committer = Committer(
            base.policy,
            base.directories,
            base.locks,
            self.passthrough_writes,
            sending.publisher,
            sending.queue,
            index,
            base.updates,
            base.copies,
            self.check,
            base.invalidation,
            base.hot,
        )
        self.handing_out = HandOut(self.files, passthrough, self.handles, self.committer, self.open_limits)
        misses = CacheMiss(
            base.view,
            views.revalidation,
            base.policy,
            base.nodes,
            base.fetcher,
            parts.counters,
            int(remote.read_while_arriving_bytes),
        )
        arriving = ArrivingFiles(misses, base.locks, base.invalidation, passthrough, parts.events)
        self.local_files = LocalFiles(misses, arriving, self.check, base.locks)
        self.prefetcher = Prefetcher(
            base.view,
            base.policy,
            base.directories,
            parts.zones,
            store.tree,
            base.fetcher,
            base.ttl,
        )
        separation = Separation(
            base.policy,
            base.directories,
            base.locks,
            index,
            base.copies,
            store.tree,
            base.nodes,
            base.invalidation,
            self.prefetcher,
        )
        self.opening = Opening(
            self.files,
            self.handing_out,
            misses,
            arriving,
            self.check,
            self.prefetcher,
            base.policy,
            base.directories,
            base.locks,
            index.entries,
            parts.counters,
            views.guard,
            base.drain,
            separation,
        )
        self.read_write = ReadWrite(
            self.files, arriving, base.directories, base.room, self.handles, self.check, base.hot, base.ordinary_user
        )
        self.releasing = Releasing(
            self.files,
            self.handles,
            self.passthrough_writes,
            self.committer,
            self.background,
            base.invalidation,
            parts.events,
        )
