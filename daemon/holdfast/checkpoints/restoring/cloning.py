"""A query's checkpoint copied to another place in its store, so that a query starts from the copy.

The store copies by itself. The file that makes the copy a checkpoint comes last, and is made anew unless the copy takes the
place of the original: two queries with one id are one and the same to sinks that note ids. A note is written first and
removed at the end: a copy that was cut off is no checkpoint, and the same command completes it. Nothing that was there is
overwritten.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from holdfast.checkpoints.examination import Examination
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import LocationLayout, Restore
from holdfast.checkpoints.plans import Listed
from holdfast.checkpoints.reachability import location_at_root
from holdfast.checkpoints.restoring.verifying import StoreVerification
from holdfast.checkpoints.sweeps.manifest_reads import read_all
from holdfast.checkpoints.sweeps.root_listing import list_root
from holdfast.checkpoints.sweeps.setting_aside import copy_all
from holdfast.digest import fingerprint_of_buffer
from holdfast.errors import ObjectExistsError, PlanError
from holdfast.remote import RemoteStore, UploadSource, key_below
from holdfast.transfer import RemoteAccess

_NOTE = "_cloning.json"
_STEP = 64
_LARGEST_NOTE_BYTES = 64 * 1024
_LARGEST_ENTRY_BYTES = 64 * 1024


class LocalView(Protocol):
    """What this node believes of a store."""

    async def directory_made(self, zone: str, key: str) -> None:
        """The store has a directory ``key`` now, with objects that this node has not written."""
        ...


class Note(msgspec.Struct, frozen=True):
    """What a copy is of, and the id that it gets; none if it keeps that of the original."""

    source: str
    batch: int
    new_id: str


@dataclass(frozen=True, slots=True)
class Cloned:
    """So many of ``total`` objects have been copied, from the query as it was after ``batch``."""

    done: int
    total: int
    batch: int
    finished: bool = False


_decode_note = msgspec.json.Decoder(Note).decode


class Clones:
    """Copies checkpoints within some stores, by the names of their zones."""

    def __init__(
        self,
        stores: Mapping[str, RemoteAccess],
        verification: StoreVerification,
        local: LocalView,
        formats: Formats = FORMATS,
    ) -> None:
        self._stores = stores
        self._verification = verification
        self._local = local
        self._formats = formats

    async def clone(self, zone: str, source: str, target: str, batch: int | None, *, keep_id: bool) -> AsyncIterator[Cloned]:
        """Copy the query at ``source``, as it was after ``batch`` or the newest one, to ``target``; yield how far it is.

        Raises ``PlanError`` when there is something at ``target``, or the batch can't be restored, and ``RemoteError``: then
        the same again goes on with it.
        """
        if f"{target}/".startswith(f"{source}/") or f"{source}/".startswith(f"{target}/") or not (source and target):
            raise PlanError("a copy can't lie within its original, nor the other way round")
        restore = await self._verification.restore(zone, source, batch)
        number = self._number(restore)
        one = _Clone(self._stores[zone], source, target, self._formats)
        async for step in one.steps(number, keep_id=keep_id):
            yield step
        await self._local.directory_made(zone, target)
        yield Cloned(one.total, one.total, number, finished=True)

    def _number(self, restore: Restore) -> int:
        return next(batch.number for layout in self._formats.locations if (batch := layout.batch_of(restore.name)))


class _Clone:
    def __init__(self, access: RemoteAccess, source: str, target: str, formats: Formats) -> None:
        self._access = access
        self._source = source
        self._target = target
        self._formats = formats
        self.total = 0

    async def steps(self, batch: int, *, keep_id: bool) -> AsyncIterator[Cloned]:
        listed = await list_root(self._access, self._source)
        layout, below = location_at_root(listed.listing, self._formats)
        wanted = await self._copied(layout, below, batch)
        self.total = len(wanted)
        entry = layout.entry.decode()
        note = await self._begun(Note(self._source, batch, "" if keep_id else str(uuid.uuid4())), entry)
        there = {each.name: each.size_bytes for each in (await list_root(self._access, self._target)).listing}
        missing = [each.name for each in wanted if there.get(each.name) != each.size_bytes]
        for first in range(0, len(missing), _STEP):
            await copy_all(self._access, iter([self._pair(name) for name in missing[first : first + _STEP]]))
            yield Cloned(len(wanted) - len(missing) + min(first + _STEP, len(missing)), len(wanted), batch)
        await self._check_whole(wanted)
        if layout.entry not in there:
            await self._write_entry(layout, entry, note)
        await self._access.delete([key_below(self._target, _NOTE)])

    async def _copied(self, layout: LocationLayout, below: list[Listed], batch: int) -> list[Listed]:
        examination = Examination(layout.copied(b"", below, batch))
        while examination.wanted:
            examination.supply(await read_all(self._access, self._source, examination.wanted))
        return examination.result

    async def _begun(self, note: Note, entry: str) -> Note:
        """Note what is to be copied, or return what was noted when the same copy was cut off. Raises ``PlanError``."""
        there = {each.name.decode(errors="replace") for each in (await list_root(self._access, self._target)).listing}
        key = key_below(self._target, _NOTE)
        if not there:
            await self._put(key, msgspec.json.encode(note))
            return note
        if _NOTE in there:
            before = _note_of(await self._access.read(_content, self._access.store, key, _LARGEST_NOTE_BYTES))
            if before is not None and (before.source, before.batch, bool(before.new_id)) == (
                note.source,
                note.batch,
                bool(note.new_id),
            ):
                return before
            raise PlanError(f"{self._target} is a copy of something else that was cut off: remove it, or name another place")
        what = "a checkpoint" if entry in there else "something"
        raise PlanError(f"there is {what} at {self._target} already: nothing is overwritten")

    async def _check_whole(self, wanted: list[Listed]) -> None:
        there = {each.name: each.size_bytes for each in (await list_root(self._access, self._target)).listing}
        bad = next((each.name for each in wanted if there.get(each.name) != each.size_bytes), None)
        if bad is not None:
            text = bad.decode(errors="backslashreplace")
            raise PlanError(f"{text} has changed while it was copied: stop the query, or try again")

    async def _write_entry(self, layout: LocationLayout, entry: str, note: Note) -> None:
        key = key_below(self._target, entry)
        if not note.new_id:
            await self._access.copy(key_below(self._source, entry), key)
            return
        content = await self._access.read(_content, self._access.store, key_below(self._source, entry), _LARGEST_ENTRY_BYTES)
        await self._put(key, layout.new_entry(content, note.new_id))

    async def _put(self, key: str, data: bytes) -> None:
        """Create an object. One that is there with these bytes is ours: an answer was lost. Raises ``PlanError``."""
        source, metadata = UploadSource(len(data), data=data), fingerprint_of_buffer(data).metadata()
        try:
            await self._access.retry().run(lambda: self._access.write_once(key, source, metadata, True))
        except ObjectExistsError:
            if await self._access.read(_content, self._access.store, key, len(data) + 1) != data:
                raise PlanError(f"{key} was made by somebody else meanwhile") from None

    def _pair(self, name: bytes) -> tuple[str, str]:
        return key_below(self._source, name.decode()), key_below(self._target, name.decode())


def _content(store: RemoteStore, key: str, most_bytes: int) -> bytes:
    return b"".join(store.read(key, 0, most_bytes, "").buffers)


def _note_of(data: bytes) -> Note | None:
    try:
        return _decode_note(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
