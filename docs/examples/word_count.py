"""A word count that survives its process, its machine's disk, and both at once: RocksDB, with checkpoints through Holdfast.

    python docs/examples/word_count.py WORKDIR TEXT [--checkpoint-every LINES]

``WORKDIR`` is a working directory in the mount, as ``holdfast workdir acquire --role counter --id 1`` prints it. The state
and the position in the text are in one RocksDB database, so a checkpoint has both of the same moment. A process that is
started again goes on from the newest checkpoint: what is still in ``localState/`` is linked, the rest is fetched.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from rocksdict import Checkpoint as RocksCheckpoint
from rocksdict import Options, Rdict

import holdfast

RETAINED = 3
POSITION = "\0position"


def open_state(job: holdfast.Job, rocksdb: Path) -> Rdict:
    """Open the database as of the newest checkpoint; an empty one if there is none."""
    shutil.rmtree(rocksdb / "db", ignore_errors=True)
    newest = job.newest()
    if newest is not None:
        newest.restore(rocksdb / "db")
        print(f"restored checkpoint {newest.id}, {len(newest.files)} files")
    return Rdict(str(rocksdb / "db"), Options())


def take_checkpoint(job: holdfast.Job, db: Rdict, rocksdb: Path) -> None:
    """RocksDB makes a snapshot of hard links. SSTs never change, and are shared; the rest is this checkpoint's alone."""
    snapshot = rocksdb / "snapshot"
    shutil.rmtree(snapshot, ignore_errors=True)
    RocksCheckpoint(db).create_checkpoint(str(snapshot))
    with job.begin() as checkpoint:
        for file in sorted(snapshot.iterdir()):
            if file.suffix == ".sst":
                checkpoint.add_shared(file)
            else:
                checkpoint.add_exclusive(file)
        sent_bytes = checkpoint.sent_bytes
        checkpoint.commit()
    job.retain(RETAINED)
    print(f"checkpoint {checkpoint.id}: {len(checkpoint.files)} files, {sent_bytes} bytes sent")


def count(workdir: Path, text: Path, checkpoint_every: int) -> None:
    """Count the words of ``text``, line by line, from where the newest checkpoint was."""
    job = holdfast.Job(workdir, "word-count")
    rocksdb = workdir / "rocksdb"
    db = open_state(job, rocksdb)
    lines = text.read_text().splitlines()
    for number in range(db.get(POSITION, 0), len(lines)):
        for word in lines[number].split():
            db[word] = db.get(word, 0) + 1
        db[POSITION] = number + 1
        if (number + 1) % checkpoint_every == 0:
            db.flush()
            take_checkpoint(job, db, rocksdb)
    total = sum(number for word, number in db.items() if word != POSITION)
    print(f"{total} words, {len(list(db.keys())) - 1} different ones")
    db.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("workdir", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--checkpoint-every", type=int, default=100, metavar="LINES")
    options = parser.parse_args()
    count(options.workdir, options.text, options.checkpoint_every)
