"""Garbage in a checkpoint location of Spark, as killed writers and lost attempts leave it."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.support.checkpoints import checkpoint_roots
from tests.support.spark.files import changelog, snapshot


def plant(location: Path, oldest: int, *, age_days: float = 0.0) -> set[Path]:
    """Leave temporary files, SSTs and logs that nobody names, lonely checksums, and state older than batch ``oldest``."""

    def put(file: Path, data: bytes = b"x") -> Path:
        return checkpoint_roots.put(file, data, age_days=age_days)

    planted = {put(location / f"offsets/.3.{uuid.uuid4()}.tmp"), put(location / f"commits/.3.{uuid.uuid4()}.TID4.tmp")}
    stores = [path for path in sorted(location.glob("state/0/*")) if path.name.isdigit()]
    for store in stores:
        planted |= {
            put(store / f".7.changelog.{uuid.uuid4()}.TID9.tmp"),
            put(store / f"..7.delta.{uuid.uuid4()}.TID9.tmp.crc"),
            put(store / f"{oldest}_{uuid.uuid4()}.zip.crc"),
            put(store / f".{oldest}_{uuid.uuid4()}.changelog.crc"),
        }
        if is_rocksdb(store):
            planted |= {
                put(store / f"SSTs/000999-{uuid.uuid4()}.sst", b"s" * 4096),
                put(store / f"logs/000999-{uuid.uuid4()}.log", b"l" * 4096),
            }
        if has_attempts(store) and oldest > 1:
            lost = f"{oldest - 1}_{uuid.uuid4()}"
            planted |= {
                put(store / f"{lost}.changelog", changelog([(1, str(uuid.uuid4()))])),
                put(store / f"{lost}.zip", snapshot([f"000999-{uuid.uuid4()}.sst"])),
            }
    return planted


def is_rocksdb(store: Path) -> bool:
    """Whether RocksDB's provider wrote here."""
    return any(store.glob("*.changelog")) or any(store.glob("*.zip"))


def has_attempts(store: Path) -> bool:
    """Whether state is named by who wrote it: format 2."""
    return any(store.glob("[0-9]*_*.changelog")) or any(store.glob("[0-9]*_*.zip"))
