"""Manifests read from a store, each as a stream of which only what is needed is fetched.

A small manifest is one GET. Of a large one (a RocksDB snapshot's zip may have megabytes of it) the readers ask for the end
and what the end points at. Memory is bounded by a few blocks for each manifest that is being read, whatever its size.
Everything here waits for the store.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import BinaryIO, cast

from holdfast.checkpoints.manifests import Manifest, Trouble, Unreadable
from holdfast.checkpoints.reachability import Wanted, missing
from holdfast.errors import NameNotStorableError, ObjectChangedError, ObjectMissingError
from holdfast.remote import RemoteStore

_BLOCK_BYTES = 2**20
_KEPT_BLOCKS = 4


class ObjectStream(io.RawIOBase):
    """A seekable stream over one version of an object; ``size_bytes`` is that version's.

    Reading raises ``ObjectChangedError`` when the version is replaced meanwhile, and the store's other errors.
    """

    def __init__(self, store: RemoteStore, key: str) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._position = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        body = store.read(key, 0, _BLOCK_BYTES, "")
        self._blocks[0] = b"".join(body.buffers)
        self._etag = body.info.etag
        self.size_bytes = body.info.size_bytes

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a place in the object."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size_bytes}[whence]
        if base + offset < 0:
            raise OSError("a place before the beginning")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the place in the object."""
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, ``size`` of them unless the object ends before."""
        end = self.size_bytes if size < 0 else min(self._position + size, self.size_bytes)
        parts = []
        while self._position < end:
            number, start = divmod(self._position, _BLOCK_BYTES)
            part = self._block(number)[start : start + end - self._position]
            parts.append(part)
            self._position += len(part)
        return b"".join(parts)

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            start = number * _BLOCK_BYTES
            body = self._store.read(self._key, start, start + _BLOCK_BYTES, self._etag)
            block = self._blocks[number] = b"".join(body.buffers)
            if len(block) < min(_BLOCK_BYTES, self.size_bytes - start):
                raise ObjectChangedError(f"GET {self._key}: the object is shorter than it was")
            if len(self._blocks) > _KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(number)
        return block


def read_object(store: RemoteStore, key: str, wanted: Wanted) -> Manifest:
    """Read the manifest at ``key``; it is ``Unreadable`` if it is gone or replaced meanwhile. Raises ``RemoteError``."""
    if not wanted.size_bytes:
        return wanted.kind.read(io.BytesIO(), 0)
    try:
        stream = ObjectStream(store, key)
        return wanted.kind.read(cast(BinaryIO, stream), stream.size_bytes)
    except (ObjectMissingError, NameNotStorableError):
        return missing(wanted.name)
    except ObjectChangedError as problem:
        return Unreadable(Trouble.MISSING, f"it was replaced while it was read: {problem}")
