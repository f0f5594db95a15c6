"""Bringing the copy of a partition up to date: what the newest checkpoint needs is listed, fetched, and the rest dropped."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import trio

from holdfast.checkpoints.examination import Answers, Examination, Wanted, missing
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import FinishedBatch, LocationLayout, StatePartition
from holdfast.checkpoints.manifests import Manifest
from holdfast.checkpoints.plans import Listed
from holdfast.checkpoints.restoring.object_checks import content
from holdfast.config import MOST_STANDBYS
from holdfast.errors import ObjectMissingError
from holdfast.holdings.report import Partition
from holdfast.remote import ObjectInfo, key_below
from holdfast.standbys.copies import StandbyCopies
from holdfast.standbys.restraint import Restraint
from holdfast.transfer.several_at_once import for_each

_FILES_AT_ONCE = 4
_STANDBYS = "_standbys"
_NUMBER, _LONGEST_NUMBER = re.compile(rb"[0-9]\s*"), 16
_log = logging.getLogger("holdfast.standbys")


class Progress(NamedTuple):
    """The progress of a copy: the state ``version`` that it is to have, and ``missing_bytes``, which it lacks of that.

    ``lacks_room``: nothing was fetched, because there was no room for all of it without an eviction. ``needed`` are the
    objects that it needs, by the paths of their copies.
    """

    version: int
    missing_bytes: int
    lacks_room: bool = False
    needed: Mapping[bytes, ObjectInfo] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """Brings copies of partitions in the store of ``zone`` up to date. All methods raise ``RemoteError`` and ``OSError``."""

    zone: str
    copies: StandbyCopies
    restraint: Restraint
    formats: Formats = FORMATS

    async def wanted_copies(self, location: str) -> int | None:
        """Return the number of copies that the query at ``location`` asks for, by its file ``_standbys``; None: for none."""
        await self.restraint.take()
        access, key = self.restraint.access, key_below(location, _STANDBYS)
        try:
            text = await access.read(content, access.store, key, _LONGEST_NUMBER)
        except ObjectMissingError:
            return None
        return int(text) if _NUMBER.fullmatch(text) and int(text) <= MOST_STANDBYS else None

    async def newest_version(self, location: str) -> int:
        """Return the state version that the newest committed batch of the query at ``location`` has left; 0: none."""
        await self.restraint.take()
        listing = await self.restraint.access.list_directory(key_below(location, "commits"), retry=False)
        found = (self._layout.state_of(b"commits/" + name.encode()) for name in listing.objects)
        return max((each.version for each in found if isinstance(each, FinishedBatch)), default=0)

    async def catch_up(self, partition: Partition, operators: Iterable[int], version: int) -> Progress:
        """Fetch what the copy of ``partition`` lacks to go on from ``version``, and drop what it does not need for that."""
        needed: dict[bytes, ObjectInfo] = {}
        for operator in sorted(operators):
            needed |= await self._needed(partition, operator, version)
        lacking = await trio.to_thread.run_sync(self._lacking, needed)
        sizes = {path: needed[path].size_bytes for path in lacking}
        if lacking and not self.copies.rooms.has_spare(sizes):
            return Progress(version, sum(sizes.values()), lacks_room=True, needed=needed)
        await for_each(lacking, lambda path: self._fetch(path, needed[path]), _FILES_AT_ONCE)
        missing_bytes = await trio.to_thread.run_sync(self.missing_bytes, needed)
        if needed and not missing_bytes:
            for operator in sorted(operators):
                await self._drop_unneeded(_directory(self.zone, partition, operator), needed)
        return Progress(version, missing_bytes, needed=needed)

    def missing_bytes(self, needed: Mapping[bytes, ObjectInfo]) -> int:
        """Return the bytes of the objects that are not here, as after an eviction. It waits for the disk."""
        return sum(needed[path].size_bytes for path in self._lacking(needed))

    def _lacking(self, needed: Mapping[bytes, ObjectInfo]) -> list[bytes]:
        """Return the paths of the copies that are not here; a partition may have thousands. It waits for the disk."""
        return [path for path, info in needed.items() if not self.copies.has(path, info)]

    @property
    def _layout(self) -> LocationLayout:
        return self.formats.locations[0]

    async def _needed(self, partition: Partition, operator: int, version: int) -> dict[bytes, ObjectInfo]:
        """Return the objects that one operator needs, by the paths of their copies."""
        location = partition.location
        await self.restraint.take()
        listed = await self.restraint.access.list_all(key_below(location, f"state/{operator}/{partition.number}"))
        infos = {_name(location, info): info for info in listed if isinstance(info, ObjectInfo)}
        of_state = [
            Listed(name, info.size_bytes, info.modified_ns)
            for name, info in infos.items()
            if isinstance(self._layout.state_of(name), StatePartition)
        ]
        begin = partial(Examination[list[bytes]], self._layout.state_to_read(b"", of_state, version))
        examination = await trio.to_thread.run_sync(begin)
        while examination.wanted:
            manifests = {self._path(location, wanted.name): infos[wanted.name] for wanted in examination.wanted}
            for path in await trio.to_thread.run_sync(self._lacking, manifests):
                await self._fetch(path, manifests[path])
            answers = await trio.to_thread.run_sync(self._answers, location, examination.wanted)
            await trio.to_thread.run_sync(examination.supply, answers)
        return {self._path(location, name): infos[name] for name in examination.result}

    def _answers(self, location: str, wanted: Iterable[Wanted]) -> Answers:
        return {each.name: self._answer(location, each) for each in wanted}

    def _answer(self, location: str, wanted: Wanted) -> Manifest:
        try:
            stream = self.copies.opened(self._path(location, wanted.name))
        except FileNotFoundError:
            return missing(wanted.name)
        with stream:
            return wanted.kind.read(stream, wanted.size_bytes)

    async def _fetch(self, path: bytes, info: ObjectInfo) -> None:
        await self.restraint.take(info.size_bytes)
        try:
            await self.copies.fetch(path, info)
        except OSError as problem:  # of this disk: what is not here counts as missing
            _log.info("can't fetch a standby copy: %s", problem)

    async def _drop_unneeded(self, directory: bytes, needed: Collection[bytes]) -> None:
        for inode in await trio.to_thread.run_sync(self.copies.unneeded, directory, needed):
            self.copies.drop(inode)
            await trio.lowlevel.checkpoint()

    def _path(self, location: str, name: bytes) -> bytes:
        return f"{self.zone}/{location}/".replace("//", "/").encode() + name


def _name(location: str, info: ObjectInfo) -> bytes:
    """Return an object's name relative to the query at ``location``."""
    return info.key[len(location) + 1 if location else 0 :].encode()


def _directory(zone: str, partition: Partition, operator: int) -> bytes:
    return f"{zone}/{key_below(partition.location, f'state/{operator}/{partition.number}')}".encode()
