"""Metadata that the tree can't hold, in LMDB beside it."""

from holdfast.index.entries import Changes, Entries
from holdfast.index.environment import Index
from holdfast.index.marks import NameMarks
from holdfast.index.records import HELD_BY_VOLUME, INTACT, UNSENT, CachedName, Entry, EntryState, WorkdirRecord
from holdfast.index.workdirs import WorkdirRecords
