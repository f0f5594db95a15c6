"""Rows about bytes in one file, which lies in the page cache and stays there: fio (``--invalidate=0``), or a loop.

Each turn begins with the file read anew, or written. How fast its pages are depends on how large they are and where in
memory they lie, which is settled when they get there; and some machines take memory back that nobody has used for half a
minute.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.benchmarks import page_cache
from tests.benchmarks.report import Goal, Unit
from tests.benchmarks.rows import Row, Scale, Site, Target, Values

_FILE = "file"
_BLOCK = b"\x5a\xa5" * 2**19
_PAGE_BYTES = 4096
_READ = Goal(peer="ext4", at_least=0.95)
_WRITE = Goal(peer="ext4", at_least=0.9)


def rows(targets: Sequence[Target], scale: Scale) -> list[Row]:
    """Return the rows, for targets that are plain directories and take writes in place."""

    def row(name: str, what: str, unit: Unit, goal: Goal, *options: str, begin: Callable[[Site], None] = _read_anew) -> Row:
        pick = _bandwidth if unit is Unit.MIB_PER_SECOND else _operations
        return Row(
            name=name,
            what=what,
            unit=unit,
            targets=tuple(targets),
            setup=_make,
            action=partial(_fio, options, scale, pick, begin),
            fresh=False,
            goals={target.name: goal for target in targets if target.ours},
        )

    psync, mapped = "--ioengine=psync", "--ioengine=mmap"
    random_read = ("--rw=randread", "--bs=4k")
    mib, each = Unit.MIB_PER_SECOND, Unit.PER_SECOND
    return [
        row("read", "sequential read, 1 MiB", mib, _READ, psync, "--rw=read", "--bs=1M"),
        row("mmap-read", "sequential read through a mapping, 1 MiB", mib, _READ, mapped, "--rw=read", "--bs=1M"),
        row("random-read", "random read, 4 KiB", each, _READ, psync, *random_read),
        row("random-read-new", "random read, 4 KiB, after writing", each, _READ, psync, *random_read, begin=_write),
        row("write", "sequential write, 1 MiB", mib, _WRITE, psync, "--rw=write", "--bs=1M"),
        row("write-sync", "write 1 MiB, fsync", mib, _WRITE, psync, "--rw=write", "--bs=1M", "--fsync=1"),
        row("random-write", "random write, 4 KiB", each, _WRITE, psync, "--rw=randwrite", "--bs=4k"),
        row("random-both", "random reads and writes mixed, 4 KiB", each, _WRITE, psync, "--rw=randrw", "--bs=4k"),
        Row(
            name="write-read",
            what="random write of 4 KiB, and a read of the same, in turn",
            unit=each,
            targets=tuple(targets),
            setup=_make,
            action=partial(_in_turn, scale),
            fresh=False,
            goals={target.name: _WRITE for target in targets if target.ours},
        ),
    ]


def fio_command(site: Site, size_bytes: int, seconds: float, options: Sequence[str]) -> list[str]:
    """Return the command that runs fio in the site's directory for some time, and prints JSON."""
    return [
        "fio",
        "--name=bench",
        "--invalidate=0",
        "--output-format=json",
        "--time_based",
        f"--runtime={round(seconds * 1000)}ms",
        f"--size={size_bytes}",
        f"--directory={site.front}",
        *options,
    ]


def _make(site: Site) -> None:
    site.front.mkdir()
    _write(site)


def _write(site: Site) -> None:
    with (site.front / _FILE).open("wb", buffering=0) as file:
        for _ in range(site.scale.data_bytes // len(_BLOCK)):
            file.write(_BLOCK)


def _fio(
    options: Sequence[str],
    scale: Scale,
    pick: Callable[[dict[str, Any]], float],
    begin: Callable[[Site], None],
    site: Site,
) -> Values:
    """Run fio after ``begin``, which is not timed."""
    begin(site)
    command = fio_command(site, scale.data_bytes, scale.data_seconds, [f"--filename={_FILE}", *options])
    result = subprocess.run(command, check=True, capture_output=True)
    job = json.loads(result.stdout)["jobs"][0]
    return {"": pick(job["read"]) + pick(job["write"])}


def _in_turn(scale: Scale, site: Site) -> Values:
    """Return how many pairs of pwrite and pread were done each second."""
    _read_anew(site)
    pages = random.Random(1)
    pairs = 0
    fd = os.open(site.front / _FILE, os.O_RDWR)
    try:
        began = now = time.perf_counter()
        while now - began < scale.data_seconds:
            offset = pages.randrange(scale.data_bytes // _PAGE_BYTES) * _PAGE_BYTES
            written = pairs.to_bytes(_PAGE_BYTES, "little")
            os.pwrite(fd, written, offset)
            if os.pread(fd, _PAGE_BYTES, offset) != written:
                raise ValueError(f"{site.front / _FILE} has other bytes at {offset} than were written")
            pairs += 1
            now = time.perf_counter()
    finally:
        os.close(fd)
    return {"": pairs / (now - began)}


def _read_anew(site: Site) -> None:
    """Take the file out of the page cache, of the mount and of the disk below, and read it through the mount."""
    page_cache.drop(site.front / _FILE)
    page_cache.drop(site.back / _FILE)
    page_cache.read(site.front / _FILE)


def _bandwidth(direction: dict[str, Any]) -> float:
    return float(direction["bw_bytes"]) / 2**20


def _operations(direction: dict[str, Any]) -> float:
    return float(direction["iops"])
