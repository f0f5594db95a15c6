"""Finds processes that have files open in a mount, so that it can't be unmounted."""

from __future__ import annotations

import os
from pathlib import Path

_MOST_NAMED = 5


def below(prefix: str) -> str:
    """Return a text that names processes with files open below the path ``prefix``, as far as this user may see them.

    The path has no symbolic links.
    """
    users = set()
    for process in Path("/proc").glob("[0-9]*"):
        for link in (process / "cwd", *_links(process / "fd")):
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target == prefix or target.startswith(prefix + "/"):
                users.add(int(process.name))
    if not users:
        return ""
    named = [f"{pid} ({_command(pid)})" for pid in sorted(users)[:_MOST_NAMED]]
    return " by " + ", ".join(named)


def _links(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "?"
