"""A process that keeps its state in RocksDB as stream processors do: ``python -m tests.support.load.rocksdb_job COMMAND …``.

The state goes through generations. Each changes, deletes and adds keys in a way that depends on nothing but its number, so
anyone can tell what a database of generation N must hold (``expected``), and ends with a checkpoint: hard links to the SSTs.
It says as JSON lines on stdout what is done: ``{"done": N}`` once generation N is synced and has its checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path

from rocksdict import AccessType, Checkpoint, Options, Rdict, WriteOptions

KEYS = 20_000
CHANGES = 4_000
IO_KINDS = ("buffered", "mmap", "direct")

_Change = tuple[bytes, bytes | None]
"""A key and its new value; None: the key goes."""


def changes(generation: int) -> Iterator[_Change]:
    """Return what a generation does to the one before."""
    source = random.Random(generation)
    for _ in range(CHANGES):
        key = b"key-%08d" % source.randrange(KEYS)
        yield key, None if source.random() < 0.1 else b"%d %d " % (generation, source.getrandbits(64)) * source.randint(1, 8)


def expected(generation: int) -> dict[bytes, bytes]:
    """Return all keys and values of a generation."""
    state: dict[bytes, bytes] = {}
    for number in range(generation + 1):
        for key, value in changes(number):
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
    return state


def differences(path: Path, generation: int, *, io: str = "buffered") -> dict[str, int]:
    """Compare a database with what it must hold, key by key: how many there are, how many are missing, wrong, too many."""
    wanted = expected(generation)
    with Rdict(str(path), options(io), access_type=AccessType.read_only()) as database:
        found = dict(database.items())
    return {
        "keys": len(found),
        "missing": len(wanted.keys() - found.keys()),
        "wrong": sum(found[key] != value for key, value in wanted.items() if key in found),
        "too many": len(found.keys() - wanted.keys()),
    }


def options(io: str) -> Options:
    """Return options with small files, so that there are many and compactions happen."""
    made = Options(raw_mode=True)
    made.create_if_missing(True)
    made.set_write_buffer_size(64 * 1024)
    made.set_target_file_size_base(64 * 1024)
    made.set_level_zero_file_num_compaction_trigger(2)
    made.set_allow_mmap_reads(io == "mmap")
    made.set_allow_mmap_writes(io == "mmap")
    made.set_use_direct_reads(io == "direct")
    made.set_use_direct_io_for_flush_and_compaction(io == "direct")
    return made


def restore(checkpoint: Path, database: Path) -> None:
    """Make a database of a checkpoint as Flink does: hard links to the SSTs, copies of the rest."""
    database.mkdir(parents=True)
    for path in checkpoint.iterdir():
        if path.suffix == ".sst":
            os.link(path, database / path.name)
        else:
            shutil.copyfile(path, database / path.name)


def generations(workdir: Path, first: int, io: str) -> Generator[int, None, None]:
    """Go from generation to generation, beginning with ``first``; yield each once it is synced and has its checkpoint.

    The two newest checkpoints are kept. Closing the generator closes the database.
    """
    synced = WriteOptions()
    synced.sync = True
    with Rdict(str(workdir / "rocksdb" / "db"), options(io)) as database:
        for generation in count(first):
            for key, value in changes(generation):
                if value is None:
                    database.delete(key)
                else:
                    database.put(key, value)
            database.put(b"~generation", b"%d" % generation, synced)
            database.delete(b"~generation", synced)
            Checkpoint(database).create_checkpoint(str(workdir / "localState" / f"chk_{generation}"))
            shutil.rmtree(workdir / "localState" / f"chk_{generation - 2}", ignore_errors=True)
            yield generation


def run(workdir: Path, first: int, last: int, io: str) -> None:
    """Go from generation ``first`` to ``last``, and say so."""
    with closing(generations(workdir, first, io)) as steps:
        for generation in islice(steps, last + 1 - first):
            print(json.dumps({"done": generation}), flush=True)


def checkpoint(database: Path, target: Path) -> None:
    """Make a checkpoint of a database that changes nothing meanwhile: no compaction takes the place of an SST."""
    quiet = options("buffered")
    quiet.set_disable_auto_compactions(True)
    with Rdict(str(database), quiet, column_families={"default": quiet}) as opened:
        Checkpoint(opened).create_checkpoint(str(target))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.load.rocksdb_job", description=__doc__)
    parser.add_argument("--io", choices=IO_KINDS, default="buffered")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("workdir", type=Path)
    running.add_argument("first", type=int)
    running.add_argument("last", type=int)
    comparing = commands.add_parser("compare")
    comparing.add_argument("database", type=Path)
    comparing.add_argument("generation", type=int)
    linking = commands.add_parser("checkpoint")
    linking.add_argument("database", type=Path)
    linking.add_argument("target", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.workdir, arguments.first, arguments.last, arguments.io)
    elif arguments.command == "checkpoint":
        checkpoint(arguments.database, arguments.target)
    else:
        print(json.dumps(differences(arguments.database, arguments.generation, io=arguments.io)))


if __name__ == "__main__":
    main()
