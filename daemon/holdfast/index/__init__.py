"""Metadata that the tree can't hold, in LMDB beside it."""

from holdfast.index.entries import Entries
from holdfast.index.environment import Index
from holdfast.index.marks import NameMarks
from holdfast.index.records import CachedName, Entry, EntryState, WorkdirRecord
from holdfast.index.workdirs import WorkdirRecords

__all__ = [
    "CachedName",
    "Entries",
    "Entry",
    "EntryState",
    "Index",
    "NameMarks",
    "WorkdirRecord",
    "WorkdirRecords",
]
