"""A link into a store whose disk becomes full while the object is sent."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from holdfast.fs.inodes.caller import Caller
from holdfast.fs.namespace import link as link_module
from holdfast.fs.namespace.link import Linking


async def test_room_is_made_for_the_name_and_the_object_is_not_stored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[object] = []
    made_room: list[bool] = []

    def add(*arguments: object, **keywords: object) -> None:
        tries.append(arguments)
        if not made_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def with_room_at_once(change: Callable[[], Any]) -> Any:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            change()
        made_room.append(True)
        return change()

    base, views, files = MagicMock(), MagicMock(), MagicMock()
    base.directories.is_spread = False
    found = SimpleNamespace(st_mode=stat.S_IFREG | 0o600, st_uid=0, st_nlink=1, st_ino=7)
    base.directories.stat = lambda directory, name: found
    base.hot.of_node = base.hot.written = lambda *_: None
    base.rooms.of = lambda file: SimpleNamespace(with_room_at_once=with_room_at_once)
    link_upload = MagicMock(send=AsyncMock())
    monkeypatch.setattr(os, "link", add)
    monkeypatch.setattr(link_module, "file_stat", lambda *_, **__: found)
    linked: Any = await Linking(base, views, files, link_upload).link(MagicMock(), MagicMock(), b"name", Caller(0, 0, 1))
    assert linked is found
    assert len(tries) == 2
    link_upload.send.assert_awaited_once()
    link_upload.record.assert_called_once()
