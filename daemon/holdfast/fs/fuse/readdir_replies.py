"""Replies to OPENDIR, READDIR and READDIRPLUS.

A directory that only this daemon changes is read directly: entries and offsets are those of the backing directory, and C
builds the reply. So a listing costs no more if it is long or continued. If a store has entries in the directory, if names
are hidden, or if offsets are not stable, the file system builds the listing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import trio

from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse import wire_format
from holdfast.fs.fuse.later_replies import LaterReplies, RequestTurns
from holdfast.fs.fuse.request_observer import Request
from holdfast.fs.fuse.wire_format import listing_flags
from holdfast.fs.inodes.node import Node
from holdfast.fs.namespace.listing import Bare, dots
from holdfast.fs.namespace.lookup import Found
from holdfast.kernel import Connection

_LARGE_BYTES = 1 << 20
_MOST_BYTES = 32 * 1024
"""The limit of a reply with attributes, or of one that the file system builds, even if the reader has more room: two hundred
entries, each of which costs a stat, or eight hundred names."""
_DOTS = (b".", b"..")
_NO_ATTRIBUTES = wire_format.no_entry(0)
_Entries = Callable[[Node, int, int], bytes]


class ReaddirReplies:
    """Answers requests for directory entries, in the wire format."""

    def __init__(
        self,
        base: Foundation,
        files: FileSystem,
        connection: Connection,
        turns: RequestTurns,
        later: LaterReplies,
    ) -> None:
        self._listings = files.listings
        self._directories = base.directories
        self._nodes = base.nodes
        self._invalidation = base.invalidation
        self._connection = connection
        self._turns = turns
        self._later = later

    def open(self, node: Node) -> bytes:
        """Answer OPENDIR."""
        self._listings.open(node)
        flags = listing_flags(node, is_ours=self._directories.is_ours(node))
        return wire_format.opened(node.id, flags, 0)

    def read(self, request: Request, node: Node, offset: int, size_bytes: int) -> bytes | bool:
        """Answer READDIR. Returns True if the reply comes later."""
        uid = request.caller.uid
        if self._is_slow(node):
            return self._later.begin(request, self._read_in_thread(uid, node, offset, size_bytes))
        body = self._backing_entries(node, offset, size_bytes)
        if body is None:
            return self._later.begin(request, self._built(uid, node, offset, size_bytes, self._entries))
        return body

    def read_with_attributes(self, request: Request, node: Node, offset: int, size_bytes: int) -> bytes | bool:
        """Answer READDIRPLUS. Returns True if the reply comes later. It gives the kernel a reference to each node in it."""
        uid, size_bytes = request.caller.uid, min(size_bytes, _MOST_BYTES)
        of_names_bytes = size_bytes * 2 // 3  # the attributes take the rest, or more
        if self._is_slow(node):
            read = self._read_in_thread(uid, node, offset, of_names_bytes, with_attributes_bytes=size_bytes)
            return self._later.begin(request, read)
        body = self._backing_entries(node, offset, of_names_bytes)
        if body is None:
            built = self._built(uid, node, offset, size_bytes, self._entries_with_attributes)
            return self._later.begin(request, built)
        return self._fitting(self._backing_found(node, body), size_bytes)

    def _is_slow(self, node: Node) -> bool:
        """Say whether to read the directory may take long. It stays as large as it ever was, and is read as a whole."""
        return self._listings.is_plain(node) and os.stat(self._directories.descriptor(node)).st_size > _LARGE_BYTES

    def _backing_entries(self, node: Node, offset: int, size_bytes: int) -> bytes | None:
        if not self._listings.is_plain(node):
            return None
        return self._connection.entries(self._directories.descriptor(node), offset, size_bytes, self._nodes.moved)

    async def _read_in_thread(
        self, uid: int, node: Node, offset: int, size_bytes: int, with_attributes_bytes: int | None = None
    ) -> bytes:
        """Read from a plain directory, with attributes if these have room."""
        async with self._turns.of(uid):
            fd = os.dup(self._directories.descriptor(node))
            try:
                read = partial(self._connection.entries, fd, offset, size_bytes, self._nodes.moved)
                body = await trio.to_thread.run_sync(read)
            finally:
                os.close(fd)
        if body is None and with_attributes_bytes is None:
            return await self._built(uid, node, offset, size_bytes, self._entries)
        if body is None:
            return await self._built(uid, node, offset, size_bytes, self._entries_with_attributes)
        return (
            body if with_attributes_bytes is None else self._fitting(self._backing_found(node, body), with_attributes_bytes)
        )

    def _backing_found(self, node: Node, body: bytes) -> Iterator[tuple[Found | None, bytes]]:
        for name, entry in wire_format.directory_entries(body):
            found = self._found(node, name)
            # The node may have got its id just now.
            yield found, entry if found is None else wire_format.with_inode(entry, found.node.id)

    def _found(self, node: Node, name: bytes) -> Found | None:
        """Return the entry of a name; None to list the name alone, because it was removed since or is damaged."""
        if name in _DOTS:
            return None
        try:
            return self._listings.entry(node, name)
        except OSError:
            return None

    def _fitting(self, entries: Iterable[tuple[Found | None, bytes]], size_bytes: int) -> bytes:
        """Return as many entries with their attributes as fit."""
        listed: list[Node] = []
        parts: list[bytes] = []
        left_out: Found | None = None
        for found, entry in entries:
            size_bytes -= wire_format.ENTRY_BYTES + len(entry)
            if size_bytes < 0:
                left_out = found
                break
            if found is None:
                parts += (_NO_ATTRIBUTES, entry)
                continue
            node, stat, seconds = found
            self._invalidation.before_attributes(node)
            listed.append(node)
            parts += (wire_format.entry(node.id, stat, seconds), entry)
        for node in listed:
            node.lookups += 1
        if left_out is not None:
            self._nodes.release(left_out.node)  # unless another name of it was listed
        return b"".join(parts)

    # --- listings that the file system builds -----------------------------------------------------------------------------

    async def _built(self, uid: int, node: Node, offset: int, size_bytes: int, entries: _Entries) -> bytes:
        async with self._turns.of(uid):
            await self._listings.prepare(node, offset)
        return entries(node, offset, min(size_bytes, _MOST_BYTES))

    def _entries(self, node: Node, offset: int, size_bytes: int) -> bytes:
        """Return as many ``fuse_dirent`` as fit."""
        entries: list[bytes] = []
        for bare in self._all_entries(node, offset):
            entry = wire_format.directory_entry(bare)
            size_bytes -= len(entry)
            if size_bytes < 0:
                break
            entries.append(entry)
        return b"".join(entries)

    def _all_entries(self, node: Node, offset: int) -> Iterator[Bare]:
        yield from dots(node, offset)
        yield from self._listings.bare(node, offset)

    def _entries_with_attributes(self, node: Node, offset: int, size_bytes: int) -> bytes:
        """Return as many ``fuse_direntplus`` as fit."""
        return self._fitting(self._all_found(node, offset), size_bytes)

    def _all_found(self, node: Node, offset: int) -> Iterator[tuple[Found | None, bytes]]:
        for dot in dots(node, offset):
            yield None, wire_format.directory_entry(dot)
        for name, found, position in self._listings.entries(node, offset):
            yield found, wire_format.directory_entry((name, found.node.id, found.stat.st_mode >> 12, position))
