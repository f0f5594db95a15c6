"""Restarts of Spark from damaged checkpoints, beside what verify says of them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.checkpoints.formats.interface import Restore
from tests.support.checkpoints.damages import Damage, verified
from tests.support.spark.trials import Laid, Outcome, cut, tried

_CHUNK_BYTES = 512


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


def _add_sidecar(file: Path) -> None:
    """Write Hadoop's sidecar of what a file is: who reads it after a flip is told, as by the mount."""
    content = file.read_bytes()
    chunks = (content[at : at + _CHUNK_BYTES] for at in range(0, len(content), _CHUNK_BYTES))
    sums = b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
    (file.parent / f".{file.name}.crc").write_bytes(b"crc\0" + _CHUNK_BYTES.to_bytes(4, "big") + sums)


def trial(spark: SparkSession, laid: Laid, scratch: Path, damage: Damage, batch: int | None, right: object) -> Trial:
    """Restart from ``batch``, or as things are, after the damage. ``right`` is the answer of an undamaged restart."""
    verdicts: list[Restore] = []

    def spoil(checkpoint: Path) -> None:
        is_flipped = damage.kind == "flipped"
        if is_flipped:
            _add_sidecar(checkpoint / damage.name)
        damage.apply(checkpoint)
        verdicts.extend(verified(checkpoint, damage.name if is_flipped else ""))
        if batch is not None:
            cut(checkpoint, batch)

    outcome = tried(spark, laid, scratch, spoil)
    named = {each.name: each for each in verdicts}
    verdict = named.get(b"commits/%d" % batch) if batch is not None else next((v for v in verdicts if v.is_newest), None)
    return Trial(damage, batch, verdict, outcome, not outcome.problem and outcome.answer == right)
