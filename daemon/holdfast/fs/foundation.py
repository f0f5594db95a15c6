"""The parts that the file system is built on: inodes, the view of the stores, and transfers between the two.

``process.assembly`` opens the ``Parts`` in the order of the layers. A ``Foundation`` is made of them before anything that
answers requests. Both are only for assembly; each part gets just what it needs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from holdfast.capacity import Disk, EmptiedDirectories, Limits, Room, Rooms
from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.partition_directories import PartitionDirectories
from holdfast.config import Config
from holdfast.fs.inodes.admission import Admission, Drain, Quotas
from holdfast.fs.inodes.descriptor_cache import DescriptorCache
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.directory_changes import DirectoryChanges
from holdfast.fs.inodes.hot_files import HotFiles
from holdfast.fs.inodes.invalidation import Invalidation
from holdfast.fs.inodes.kernel import Kernel
from holdfast.fs.inodes.locks import NodeLocks
from holdfast.fs.inodes.losses import Losses
from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.node_limit import NodeLimit
from holdfast.fs.inodes.node_recovery import NodeRecovery, StatsInTree
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.object_rights import ObjectRights
from holdfast.fs.inodes.pending_unlinks import PendingUnlinks
from holdfast.fs.inodes.time_to_live import TimeToLive
from holdfast.fs.store_view import StoreView
from holdfast.index import Index
from holdfast.session import SessionTables
from holdfast.store import OrdinaryUser, StoreDirectory, disk_space
from holdfast.system.file_id import file_stat
from holdfast.telemetry import Counters, EventLog, RareEvents
from holdfast.transfer import CachedCopies, Fetcher, HashingThreads, Remote, Uploader
from holdfast.zones import NameTable, ZoneMap


@dataclass(frozen=True, slots=True)
class Parts:
    """The opened parts below the file system."""

    config: Config
    store: StoreDirectory
    index: Index
    session: SessionTables
    zones: ZoneMap
    names: NameTable
    remotes: Mapping[str, Remote]
    events: EventLog
    counters: Counters


class Foundation:
    """The parts that requests, control socket and background work share."""

    def __init__(self, parts: Parts, kernel: Kernel) -> None:
        config, store, index = parts.config, parts.store, parts.index
        self.parts = parts
        self.kernel = kernel
        self.locks = NodeLocks()
        self.rare_events = RareEvents(parts.events, time.monotonic)
        owners = {name: remote.ownership for name, remote in parts.remotes.items()}
        self.rights = ObjectRights(store.tree, owners)
        self.ttl = TimeToLive(config.remote, self.rights)
        self.unlinks = PendingUnlinks(parts.session.unlinks, time.monotonic)
        self.recovery = NodeRecovery(
            parts.session.records, store.orphanage.inodes, StatsInTree(store.tree), kernel.notifications.knows
        )
        descriptors = DescriptorCache(kernel.directories)
        self.zone_numbers = {name: number for number, name in enumerate(parts.zones.top_names, 1)}
        self.nodes = NodeTable(
            file_stat(store.tree.root_fd).st_ino,
            index.run,
            records=parts.session.records,
            reserved=self.unlinks.gone,
            earlier=self.recovery,
            left=lambda node: descriptors.forget(node.id),
            zones=self.zone_numbers,
        )
        self.drain = Drain(parts.session.draining)
        self.quotas = Quotas(kernel.backing_files.hold_writes)
        self.directories = Directories(self.nodes, store, parts.zones, descriptors, self.ttl, owners)
        self.admission = Admission(self.directories, self.drain, self.quotas)
        self.hot = HotFiles(store, self.nodes, descriptors, kernel.notifications.invalidate, kernel.backing_files)
        self.losses = Losses(self.hot, self.nodes, parts.events)
        self.policy = NamePolicy(parts.names, parts.zones, self.directories)
        self.view = StoreView(parts.remotes, index.marks)
        self.invalidation = Invalidation(self.nodes, self.directories, store, self.unlinks, self.hot, kernel.notifications)
        self.node_limit = NodeLimit(self.nodes, kernel.notifications, config.limits.cached_names)
        self.copies = CachedCopies(store, index, parts.events, parts.counters, zones=parts.zones, listener=self.invalidation)
        for remote in parts.remotes.values():
            changes = DirectoryChanges(remote, store, self.invalidation, index.marks.is_whited_out)
            remote.directories.follow(changes.names_changed)
        emptied = EmptiedDirectories(self.copies, parts.zones, store.tree, owners)
        self.rooms = Rooms(
            [self._room_on(disk, emptied) for disk in _disks(store)],
            index,
            store.tree.disk_at,
            are_spread=config.store.spread_cache,
        )
        if config.store.spread_cache:
            partitions = PartitionDirectories(parts.zones, FORMATS)
            store.tree.spread_partitions(partitions.above, lambda space: self.rooms.first.limits.reserve(space))
        self.ordinary_user = OrdinaryUser(self.rooms.is_near_end)
        self.fetcher = Fetcher(
            store.staging,
            make_room=self.rooms.make_room,
            place=self.copies.place,
            events=parts.events,
            counters=parts.counters,
        )
        self.hashing = HashingThreads()
        self.uploader = Uploader(
            config.remote.single_put_limit_bytes, store.store_id, self.hashing, parts.counters, self.losses.check
        )

    def _room_on(self, disk: Disk, emptied: EmptiedDirectories) -> Room:
        parts = self.parts
        limits = Limits.configured(parts.config.cache)
        return Room(limits, disk, parts.index, self.copies, emptied, events=parts.events, counters=parts.counters)


def _disks(store: StoreDirectory) -> list[Disk]:
    """Return all disks of the store that are there, the first one first."""
    first = Disk(partial(disk_space, store.tree.root_fd), store.freeing.on().space, path=str(store.path))
    return [
        first,
        *(
            Disk(disk.space, store.freeing.on(disk.device).space, number=disk.number, path=str(disk.path))
            for disk in store.others.present
        ),
    ]
