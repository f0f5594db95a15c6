"""The local store: one directory on one file system that contains everything this node keeps."""

from holdfast.store.change_stamps import LONGEST_TICK_NS, Stamp, Stamps, stamp_of
from holdfast.store.descent import DIRECTORY, Unreadable, descend
from holdfast.store.directory_times import ImpliedTimes, advance_mtime, keeping_mtime
from holdfast.store.file_notes import (
    digest_when_placed,
    holds_for,
    is_copy,
    is_unsent,
    mark_copy,
    mark_not_accepted,
    mark_unsent,
    note_digest,
    noted_digest,
    renew_noted_digest,
    unmark_unsent,
    unsent_mark,
    was_not_accepted,
)
from holdfast.store.format_file import FORMAT_VERSION, SPREAD_FORMAT_VERSION
from holdfast.store.held_directories import HeldDirectory
from holdfast.store.layout import StoreDirectory
from holdfast.store.lost_bytes import check_nothing_lost, is_marked_lost, mark_lost, sync_bytes, unmark_lost
from holdfast.store.ordinary_user import OrdinaryUser
from holdfast.store.other_disk import OtherDisk, has_own_rights, make_like
from holdfast.store.outside_calls import Answer, OutsideCalls
from holdfast.store.quarantine import Quarantine, QuarantinedFile
from holdfast.store.space import (
    NO_ROOM,
    QUICKLY_FREED_BYTES,
    DiskSpace,
    Freeing,
    Space,
    disk_space,
    ignoring_full_disk,
    measured,
)
from holdfast.store.staging import Orphanage, Staging, Trash, own_directory
from holdfast.store.tree import Tree
from holdfast.system.syscalls import RENAME_EXCHANGE, RENAME_NOREPLACE, rename_with_flags
