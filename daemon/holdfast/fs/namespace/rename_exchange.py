"""renameat2(2) with RENAME_EXCHANGE: two names that lead to each other's files, where neither is an object's."""

from __future__ import annotations

import os
import stat as stat_module

from holdfast.errors import NoSuchEntryError, UnsupportedError, ZoneRootBusyError
from holdfast.fs.inodes.core import Core
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.inodes.replay import Attempt
from holdfast.store import RENAME_EXCHANGE, rename_with_flags
from holdfast.zones import ZonePath


def exchange(
    core: Core, source: Node, old: bytes, target: Node, new: bytes, here: ZonePath, there: ZonePath, attempt: Attempt
) -> None:
    """Exchange ``old`` in ``source``, which is at ``here``, with ``new`` in ``target``, at ``there``.

    Afterwards nothing tells whether it was done; so what was where is noted before.
    """
    involves_store = any(place.zone.is_store or place.zone.sends for place in (here, there))
    pairs = []
    before: dict[int, os.stat_result] = {}
    for directory, name, place in ((source, old, here), (target, new, there)):
        stat = core.local_stat(directory, name)
        if stat is None:
            raise NoSuchEntryError(f"there is no {os.fsdecode(name)}")
        child = core.zones.child(place, name)
        assert child is not None
        is_directory = stat_module.S_ISDIR(stat.st_mode)
        if is_directory and core.zones.is_fixed(child):
            raise ZoneRootBusyError("the root of a zone or a working directory can't be renamed")
        if (is_directory and involves_store) or core.sends(place, name):
            raise UnsupportedError("objects can't be exchanged in one step")
        before[stat.st_ino] = stat
        pairs.append((directory, name, core.nodes.local(directory, name, stat.st_ino, stat.st_mode)))
    note = b"%d %d" % (pairs[0][2].backing, pairs[1][2].backing)
    if attempt.resent and core.session.records.noted(attempt.number) not in (None, note):
        return  # each is where the other was
    core.session.records.note(attempt.number, note)
    rename_with_flags(core.directories.descriptor(source), old, core.directories.descriptor(target), new, RENAME_EXCHANGE)
    (first_dir, first_name, first), (second_dir, second_name, second) = pairs
    for node, lost, won in ((first, pairs[0], pairs[1]), (second, pairs[1], pairs[0])):
        core.nodes.drop_name(node, lost[0], lost[1])
        core.nodes.add_name(node, won[0], won[1])
    core.directories.renamed()
    for directory, name in ((first_dir, first_name), (second_dir, second_name)):
        after = core.local_stat(directory, name)
        if after is not None:
            core.refresh_entry(before[after.st_ino], after)
