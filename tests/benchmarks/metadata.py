"""Rows about names and attributes: one thread, many small files in one directory.

Most rows work on names that the kernel knows, because they were made through the mount. The ``first`` rows and the listings
meet files that were put behind the file system's back into a directory that nobody has looked at, as after a start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from tests.benchmarks import files
from tests.benchmarks.report import Goal, Unit
from tests.benchmarks.rows import Row, Scale, Site, Target, Values, seconds_of

_AS_FAST_AS_BINDFS = Goal(peer="bindfs", at_least=1.0)
_LISTING = Goal(peer="ext4", at_least=0.3)
_KNOWN_FILES = frozenset({"stat", "stat-again", "open-read"})
"""What needs no store where a write does, and so is as fast there as in a local zone."""

_Each = Callable[[Site, Sequence[str]], None]
"""Does something to all of the given names."""


def rows(targets: Sequence[Target], scale: Scale) -> list[Row]:
    """Return the rows, for targets that are plain directories."""

    def row(name: str, what: str, setup: _Each, action: _Each, count: int = scale.files, *, fresh: bool = True) -> Row:
        able = [target for target in targets if _is_able(target, name, setup)]
        goal = _LISTING if name == "list-many" else _AS_FAST_AS_BINDFS
        return Row(
            name=name,
            what=what,
            unit=Unit.PER_SECOND,
            targets=tuple(able),
            setup=partial(_run, setup, count),
            action=partial(_rate, action, count),
            fresh=fresh,
            goals={target.name: goal for target in able if target.ours and (not target.commits or name in _KNOWN_FILES)},
            things=count,
        )

    return [
        row("create", "create, write 100 bytes, close", _make_directory, _create),
        row("commit", "write a temporary file, rename it to its final name", _make_directory, _commit),
        row(
            "commit-durable",
            "the same, durable: synced, or sent to the store",
            _make_directory,
            _commit_durably,
            scale.synced,
        ),
        row("stat", "stat of files just written", _fill, _stat),
        row("stat-again", "stat of names and attributes known", _fill_and_stat, _stat),
        row("stat-first", "stat of names not seen before", _fill_behind, _stat),
        row("stat-missing", "stat of names that are not there", _make_directory, _stat_missing),
        row("open-read", "open, read 100 bytes, close: known files", _fill, _read),
        row("open-read-first", "open, read, close: files not seen before", _fill_behind, _read),
        row("link", "hard link", _fill, _link),
        row("rename", "rename to a new name", _fill, _rename),
        row("replace", "rename over another file", _fill_pairs, _replace),
        row("unlink", "unlink", _fill, _unlink),
        row("list", f"names of a directory of {scale.listed:,}", _fill_behind, _list, scale.listed, fresh=False),
        row(
            "list-stat",
            f"names and attributes of a directory of {scale.listed:,}",
            _fill_behind,
            _list_stat,
            scale.listed,
            fresh=False,
        ),
        row(
            "list-many",
            f"names of a directory of {scale.listed_many:,}",
            _fill_behind,
            _list,
            scale.listed_many,
            fresh=False,
        ),
    ]


def _is_able(target: Target, row: str, setup: _Each) -> bool:
    return row not in target.cannot and (target.sees_changes or setup is not _fill_behind)


def _run(each: _Each, count: int, site: Site) -> None:
    each(site, files.names(site.part_of(count)))


def _rate(each: _Each, count: int, site: Site) -> Values:
    names = files.names(site.part_of(count))
    return {"": len(names) / seconds_of(lambda: each(site, names))}


def _make_directory(site: Site, names: Sequence[str]) -> None:
    del names
    site.front.mkdir()


def _fill(site: Site, names: Sequence[str]) -> None:
    site.front.mkdir()
    _create(site, names)


def _fill_and_stat(site: Site, names: Sequence[str]) -> None:
    _fill(site, names)
    _stat(site, names)


def _fill_behind(site: Site, names: Sequence[str]) -> None:
    site.back.mkdir()
    files.create(site.back, names)


def _fill_pairs(site: Site, names: Sequence[str]) -> None:
    _fill(site, names)
    _create(site, [f"{name}.new" for name in names])


def _create(site: Site, names: Sequence[str]) -> None:
    files.create(site.front, names)


def _commit(site: Site, names: Sequence[str]) -> None:
    """As Spark commits each file of a checkpoint."""
    directory = site.front
    for name in names:
        temporary = f".{name}.0a1b2c3d-0000-4000-8000-0123456789ab.tmp"
        files.create(directory, [temporary])
        os.rename(f"{directory}/{temporary}", f"{directory}/{name}")


def _commit_durably(site: Site, names: Sequence[str]) -> None:
    """As who wants to find the file again after a power cut. In a store's zone the rename alone does it."""
    if site.target.commits:
        _commit(site, names)
        return
    directory_fd = os.open(site.front, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names:
            temporary = f"{site.front}/.{name}.tmp"
            with open(temporary, "xb", buffering=0) as file:
                file.write(files.CONTENT)
                os.fsync(file.fileno())
            os.rename(temporary, f"{site.front}/{name}")
            os.fsync(directory_fd)
    finally:
        os.close(directory_fd)


def _stat(site: Site, names: Sequence[str]) -> None:
    directory = site.front
    for name in names:
        os.stat(f"{directory}/{name}")


def _stat_missing(site: Site, names: Sequence[str]) -> None:
    directory = site.front
    for name in names:
        try:
            os.stat(f"{directory}/{name}")
        except FileNotFoundError:
            continue
        raise AssertionError(f"{name} is there")


def _read(site: Site, names: Sequence[str]) -> None:
    directory = site.front
    for name in names:
        fd = os.open(f"{directory}/{name}", os.O_RDONLY)
        try:
            found = os.read(fd, 4096)
        finally:
            os.close(fd)
        assert found == files.CONTENT, f"{name} has other bytes than were written"


def _link(site: Site, names: Sequence[str]) -> None:
    directory = site.front
    for name in names:
        os.link(f"{directory}/{name}", f"{directory}/{name}.link")


def _rename(site: Site, names: Sequence[str]) -> None:
    directory = site.front
    for name in names:
        os.rename(f"{directory}/{name}", f"{directory}/{name}.renamed")


def _replace(site: Site, names: Sequence[str]) -> None:
    directory = site.front
    for name in names:
        os.rename(f"{directory}/{name}.new", f"{directory}/{name}")


def _unlink(site: Site, names: Sequence[str]) -> None:
    directory = site.front
    for name in names:
        os.unlink(f"{directory}/{name}")


def _list(site: Site, names: Sequence[str]) -> None:
    assert len(os.listdir(site.front)) == len(names), "a name is missing in the listing"


def _list_stat(site: Site, names: Sequence[str]) -> None:
    with os.scandir(site.front) as entries:
        assert sum(entry.stat().st_size for entry in entries) == len(files.CONTENT) * len(names), "a file is missing"
