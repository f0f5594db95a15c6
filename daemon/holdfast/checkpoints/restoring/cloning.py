"""A checkpoint copied to another place in its store, so that a query or a job starts from the copy.

The store copies by itself. The file that makes the copy a checkpoint comes last, and is made anew unless the copy takes the
place of the original: two queries with one id are one and the same to sinks that note ids. A note is written first and
removed at the end: a copy that was cut off is no checkpoint, and the same command completes it. Nothing that was there is
overwritten.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from holdfast.checkpoints.examination import Examination
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import LocationLayout
from holdfast.checkpoints.plans import Listed
from holdfast.checkpoints.reachability import location_at_root, self_contained
from holdfast.checkpoints.restoring.object_checks import content
from holdfast.checkpoints.restoring.verifying import StoreVerification
from holdfast.checkpoints.sweeps.execution import LocalCopies
from holdfast.checkpoints.sweeps.manifest_reading import read_all
from holdfast.checkpoints.sweeps.planning import RootListing, list_root
from holdfast.checkpoints.sweeps.setting_aside import copy_all, in_steps
from holdfast.digest import fingerprint_of_buffer
from holdfast.errors import ObjectExistsError, PlanError
from holdfast.remote import UploadSource, key_below
from holdfast.system.text import shown
from holdfast.transfer import RemoteAccess

_NOTE = "_cloning.json"
_LARGEST_NOTE_BYTES = 64 * 1024
_LARGEST_ENTRY_BYTES = 64 * 1024
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Original:
    """The original of a copy: ``files``, by their names below ``source``, then ``entry``, which makes it a checkpoint.

    For a query as it was after ``batch``, ``layout`` makes the entry with another id, and each of the files ``rewritten``
    for a copy at another place.
    """

    source: str
    files: list[Listed]
    entry: str
    batch: int | None = None
    rewritten: tuple[Listed, ...] = ()
    layout: LocationLayout | None = None


@dataclass(frozen=True, slots=True)
class Originals:
    """Finds out what is to be copied, in some stores, by the names of their zones."""

    stores: Mapping[str, RemoteAccess]
    verification: StoreVerification
    formats: Formats = FORMATS

    async def at(self, zone: str, source: str, batch: int | None) -> Original:
        """Return what a copy of ``source`` takes, of a query as it was after ``batch`` or its newest.

        Raises ``PlanError`` when it can't be restored, or not from another place; and ``RemoteError``.
        """
        listed = await list_root(self.stores[zone], source)
        found = await self._examined(zone, source, self_contained(listed.listing, self.formats))
        if found is None:
            return await self._query(zone, source, batch, listed)
        if batch is not None:
            raise PlanError(f"{source} is a checkpoint of a job, which has no batches")
        *files, manifest = found
        return Original(source, files, manifest.name.decode())

    async def _query(self, zone: str, source: str, batch: int | None, listed: RootListing) -> Original:
        restore = await self.verification.restore(zone, source, batch)
        number = next(found.number for layout in self.formats.locations if (found := layout.batch_of(restore.name)))
        layout, below = location_at_root(listed.listing, self.formats)
        copied = await self._examined(zone, source, Examination(layout.copied(b"", below, number)))
        return Original(source, copied.files, layout.entry.decode(), number, tuple(copied.rewritten), layout)

    async def _examined(self, zone: str, source: str, examination: Examination[_T]) -> _T:
        while examination.wanted:
            examination.supply(await read_all(self.stores[zone], source, examination.wanted))
        return examination.result


class Note(msgspec.Struct, frozen=True):
    """The note of a copy: what is copied, and the id that the copy gets; none if it keeps that of the original."""

    source: str
    batch: int | None
    new_id: str


@dataclass(frozen=True, slots=True)
class Cloned:
    """The progress of a copy: ``done`` of ``total`` objects, ``bytes_done`` in all, of a query as it was after ``batch``."""

    done: int
    total: int
    batch: int | None
    bytes_done: int = 0
    finished: bool = False


_decode_note = msgspec.json.Decoder(Note).decode


class Clones:
    """Copies checkpoints within some stores, by the names of their zones."""

    def __init__(self, stores: Mapping[str, RemoteAccess], originals: Originals, local: LocalCopies) -> None:
        self._stores = stores
        self._originals = originals
        self._local = local

    async def clone(self, zone: str, source: str, target: str, batch: int | None, *, keep_id: bool) -> AsyncIterator[Cloned]:
        """Copy what is at ``source``, a query as it was after ``batch`` or its newest, to ``target``; yield how far it is.

        Raises ``PlanError`` when there is something at ``target``, or the original can't be restored or copied, and
        ``RemoteError``: then the same again goes on with it.
        """
        if f"{target}/".startswith(f"{source}/") or f"{source}/".startswith(f"{target}/") or not (source and target):
            raise PlanError("a copy can't lie within its original, nor the other way round")
        original = await self._originals.at(zone, source, batch)
        last = Cloned(0, len(original.files) + len(original.rewritten), original.batch)
        async for last in _Clone(self._stores[zone], original, target).steps(keep_id=keep_id):
            yield last
        await self._local.directory_made(zone, target)
        yield replace(last, finished=True)


class _Clone:
    def __init__(self, access: RemoteAccess, original: Original, target: str) -> None:
        self._access = access
        self._original = original
        self._source = original.source
        self._target = target

    async def steps(self, *, keep_id: bool) -> AsyncIterator[Cloned]:
        original = self._original
        is_renewed = original.layout is not None and not keep_id
        there = await self._there()
        for each in original.rewritten:  # before anything is written
            await self._moved(each)
        note = await self._begun(Note(self._source, original.batch, str(uuid.uuid4()) if is_renewed else ""), there)
        missing = [each for each in original.files if there.get(each.name) != each.size_bytes]
        total = len(original.files) + len(original.rewritten)
        done, bytes_done = total - len(missing), 0
        for each in original.rewritten:
            await self._put(key_below(self._target, each.name.decode()), await self._moved(each))
            bytes_done += each.size_bytes
        for step in in_steps(missing):
            await copy_all(self._access, [self._pair(each.name) for each in step])
            done += len(step)
            bytes_done += sum(each.size_bytes for each in step)
            yield Cloned(done, total, original.batch, bytes_done)
        await self._check_whole(original.files)
        if original.entry.encode() not in there:
            await self._write_entry(note)
        await self._access.delete([key_below(self._target, _NOTE)])
        yield Cloned(done, done, original.batch, bytes_done)

    async def _moved(self, file: Listed) -> bytes:
        """Return what a file with paths in it is to be in the copy. Raises ``PlanError``."""
        source, layout = key_below(self._source, file.name.decode()), self._original.layout
        before = await self._access.read(content, self._access.store, source, file.size_bytes)
        return before if layout is None else layout.moved(before, self._source.encode(), self._target.encode())

    async def _there(self) -> dict[bytes, int]:
        """Return the sizes in bytes of what there is at the target, by name."""
        return {each.name: each.size_bytes for each in (await list_root(self._access, self._target)).listing}

    async def _begun(self, note: Note, there: Collection[bytes]) -> Note:
        """Note what is to be copied, or return what was noted when the same copy was cut off. Raises ``PlanError``."""
        key = key_below(self._target, _NOTE)
        if not there:
            await self._put(key, msgspec.json.encode(note))
            return note
        if _NOTE.encode() in there:
            before = _note_of(await self._access.read(content, self._access.store, key, _LARGEST_NOTE_BYTES))
            if before is not None and (before.source, before.batch, bool(before.new_id)) == (
                note.source,
                note.batch,
                bool(note.new_id),
            ):
                return before
            raise PlanError(f"{self._target} is a copy of something else that was cut off: remove it, or name another place")
        what = "a checkpoint" if self._original.entry.encode() in there else "something"
        raise PlanError(f"there is {what} at {self._target} already: nothing is overwritten")

    async def _check_whole(self, wanted: list[Listed]) -> None:
        there = await self._there()
        bad = next((each.name for each in wanted if there.get(each.name) != each.size_bytes), None)
        if bad is not None:
            raise PlanError(f"{shown(bad)} has changed while it was copied: stop the query, or try again")

    async def _write_entry(self, note: Note) -> None:
        entry, layout = self._original.entry, self._original.layout
        source, target = key_below(self._source, entry), key_below(self._target, entry)
        if layout is None or not note.new_id:
            await self._access.copy(source, target)
            return
        before = await self._access.read(content, self._access.store, source, _LARGEST_ENTRY_BYTES)
        await self._put(target, layout.new_entry(before, note.new_id))

    async def _put(self, key: str, data: bytes) -> None:
        """Create an object. One that is there with these bytes is ours: an answer was lost. Raises ``PlanError``."""
        source, metadata = UploadSource(len(data), data=data), fingerprint_of_buffer(data).metadata()
        try:
            await self._access.retry().run(lambda: self._access.write_once(key, source, metadata, True))
        except ObjectExistsError:
            if await self._access.read(content, self._access.store, key, len(data) + 1) != data:
                raise PlanError(f"{key} was made by somebody else meanwhile") from None

    def _pair(self, name: bytes) -> tuple[str, str]:
        return key_below(self._source, name.decode()), key_below(self._target, name.decode())


def _note_of(data: bytes) -> Note | None:
    try:
        return _decode_note(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
