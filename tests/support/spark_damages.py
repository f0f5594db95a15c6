"""Single files of a checkpoint that are taken away, cut short, emptied or flipped; and what verify says of what is left."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.checkpoints.examination import examined
from holdfast.checkpoints.formats.interface import Restore
from holdfast.checkpoints.reachability.restores import restores
from tests.support.roots import Root
from tests.support.spark_trials import Laid, Outcome, cut, tried

KINDS = ("missing", "cut", "empty", "flipped")
_CHUNK_BYTES = 512


@dataclass(frozen=True)
class Damage:
    """What is done to the file ``name``, relative to the checkpoint."""

    name: str
    kind: str

    def apply(self, checkpoint: Path) -> None:
        """Do it. A flipped file gets Hadoop's sidecar of what it was: who reads it is told, as by the mount."""
        file = checkpoint / self.name
        content = file.read_bytes()
        if self.kind == "missing":
            file.unlink()
        elif self.kind == "cut":
            file.write_bytes(content[: -max(1, len(content) // 3)])
        elif self.kind == "empty":
            file.write_bytes(b"")
        else:
            chunks = (content[at : at + _CHUNK_BYTES] for at in range(0, len(content), _CHUNK_BYTES))
            sums = b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
            (file.parent / f".{file.name}.crc").write_bytes(b"crc\0" + _CHUNK_BYTES.to_bytes(4, "big") + sums)
            at = len(content) // 2
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


@dataclass(frozen=True)
class Trial:
    """A restart from a damaged checkpoint, from the newest batch or from ``batch``, and what verify had said of it."""

    damage: Damage
    batch: int | None
    verdict: Restore | None
    outcome: Outcome
    is_right: bool

    @property
    def agrees(self) -> bool:
        """Whether Spark went on with the right state, and verify had said so, or neither."""
        return self.is_right == (self.verdict is not None and self.verdict.is_good)


def damages(checkpoint: Path) -> Iterator[Damage]:
    """Yield each damage of each file."""
    files = sorted(str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file())
    for number, name in enumerate(files):
        for kind in KINDS[number % 4 :] + KINDS[: number % 4]:
            yield Damage(name, kind)


def verified(checkpoint: Path, spoilt: str = "") -> list[Restore]:
    """Return what verify says of a checkpoint; ``spoilt`` is a file whose bytes it has compared with its digest."""
    root = Root.of_directory(checkpoint)
    return examined(restores(root.listing(), spoilt={spoilt.encode()} - {b""}), root.open)


def trial(spark: SparkSession, laid: Laid, scratch: Path, damage: Damage, batch: int | None, right: object) -> Trial:
    """Restart from ``batch``, or as things are, after the damage. ``right`` is the answer of an undamaged restart."""
    verdicts: list[Restore] = []

    def spoil(checkpoint: Path) -> None:
        damage.apply(checkpoint)
        verdicts.extend(verified(checkpoint, damage.name if damage.kind == "flipped" else ""))
        if batch is not None:
            cut(checkpoint, batch)

    outcome = tried(spark, laid, scratch, spoil)
    named = {each.name: each for each in verdicts}
    verdict = named.get(b"commits/%d" % batch) if batch is not None else next((v for v in verdicts if v.is_newest), None)
    return Trial(damage, batch, verdict, outcome, not outcome.problem and outcome.answer == right)
