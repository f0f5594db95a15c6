"""Names of users for people who read events: ``uid=1001`` says little.

The name service may ask a directory over the network, so it is asked in a thread, and answers are kept for a while.
"""

from __future__ import annotations

import pwd
from collections.abc import Iterable

import trio

_KEPT_SECONDS = 600.0
_MOST = 4096


class UserNames:
    """Looks user ids up, at most once in ten minutes each."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, str]] = {}

    async def of(self, uids: Iterable[int]) -> dict[int, str]:
        """Return the names of those users that have one."""
        now = trio.current_time()
        wanted = set(uids)
        unknown = [uid for uid in wanted if now - self._known.get(uid, (-_KEPT_SECONDS, ""))[0] >= _KEPT_SECONDS]
        if unknown:
            found = await trio.to_thread.run_sync(_names, unknown, abandon_on_cancel=True)
            if len(self._known) + len(found) > _MOST:
                self._known.clear()
            self._known.update({uid: (now, name) for uid, name in found.items()})
        return {uid: name for uid in wanted if (name := self._known.get(uid, (0.0, ""))[1])}


def _names(uids: list[int]) -> dict[int, str]:
    return {uid: _name(uid) for uid in uids}


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):  # nobody has this id; it is none that there can be
        return ""
