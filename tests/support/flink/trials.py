"""Restores of a real Flink from damaged checkpoints and savepoints, in one JVM, beside what verify says of them.

The counting job writes them below a directory, each way in which Flink keeps state in one of its own (``SHAPES``). Metadata
has absolute paths, so the damage is done in place and taken back after the restore, which itself writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.checkpoints.formats.interface import Restore
from tests.support.checkpoints.damages import Damage, files_below, verified
from tests.support.daemons.node import wait_until
from tests.support.flink.real_flink import Counting, Flink, Restoring

_RETAINED = 2
_COMPLETED = 5
_COMMON = {
    "execution.checkpointing.data-inline-threshold": "0",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "restart-strategy.type": "none",
}
_ROCKSDB = {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"}
_CHANGELOG = {**_ROCKSDB, "state.changelog.enabled": "true", "state.changelog.storage": "filesystem"}


@dataclass(frozen=True)
class Shape:
    """A way of keeping state; ``savepoint`` is the format of one that is taken in place of checkpoints."""

    settings: dict[str, str]
    savepoint: str = ""


SHAPES = {
    "rocksdb": Shape(_ROCKSDB),
    "hashmap": Shape({"state.backend.type": "hashmap"}),
    "changelog": Shape(_CHANGELOG),
    "compressed changelog": Shape({**_CHANGELOG, "state.changelog.dstl.dfs.compression.enabled": "true"}),
    "merging": Shape({**_ROCKSDB, "execution.checkpointing.file-merging.enabled": "true"}),
    "inline": Shape({**_ROCKSDB, "execution.checkpointing.data-inline-threshold": "20kb"}),
    "canonical": Shape(_ROCKSDB, "CANONICAL"),
    "native": Shape(_ROCKSDB, "NATIVE"),
}


@dataclass(frozen=True)
class Trial:
    """A restore from what is called ``name`` after a damage: what verify had said of it, and what came of it."""

    damage: Damage
    name: str
    verdict: Restore | None
    answer: str
    is_right: bool

    @property
    def agrees(self) -> bool:
        """Whether Flink went on with the right state, and verify had said so, or neither."""
        return self.is_right == (self.verdict is not None and self.verdict.is_good)


class Laid:
    """What the counting job has written below ``root`` in one of the shapes."""

    def __init__(self, flink: Flink, shape: Shape, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self._settings = {
            **_COMMON,
            "state.changelog.dstl.dfs.base-path": f"file://{root}",
            "state.changelog.periodic-materialize.interval": "1500ms",
            "execution.checkpointing.dir": f"file://{root}",
            "execution.checkpointing.interval": "600ms",
            "execution.checkpointing.num-retained": str(_RETAINED),
            **shape.settings,
        }
        with flink.counting(self._settings) as running:
            self._write(running, shape.savepoint)
        what = "savepoint" if shape.savepoint else "checkpoint"
        found = [each for each in verified(root) if each.what == what and each.is_good]
        self.names = [each.name.decode() for each in sorted(found, key=lambda each: each.is_newest)]
        """What can be restored, the newest last: the kill may have cut off Flink's own deletion of the oldest."""

    def _write(self, running: Counting, savepoint: str) -> None:
        """Wait for checkpoints; then take a savepoint: one is refused until all tasks run, as they do after a checkpoint."""
        running.goes_on()
        least = 1 if savepoint else _COMPLETED
        wait_until(
            lambda: max((int(path.parent.name[4:]) for path in self.root.glob("*/chk-*/_metadata")), default=0) >= least
        )
        if savepoint:
            running.savepoint(savepoint, self.root)

    @contextmanager
    def restoring(self, flink: Flink) -> Iterator[Restoring]:
        """Be ready to restore what was written; no restore writes a checkpoint."""
        settings = {key: value for key, value in self._settings.items() if not key.startswith("execution.checkpointing.")}
        with flink.restoring(settings) as restores:
            yield restores

    def files(self, names: Collection[str]) -> list[str]:
        """Return the files that a restore from any of ``names`` reads, by their names."""
        reads = {name.decode() for each in verified(self.root) if each.name.decode() in names for name in each.files()}
        return [name for name in files_below(self.root) if name in reads]


def trial(laid: Laid, damage: Damage, name: str, right: str, restore: Callable[[Path], str]) -> Trial:
    """Restore from ``name`` after the damage. ``right`` is the answer of an undamaged restore."""
    file = laid.root / damage.name
    content = file.read_bytes()
    damage.apply(laid.root)
    try:
        verdicts = verified(laid.root, damage.name if damage.kind == "flipped" else "")
        answer = restore(laid.root / name)
    finally:
        file.write_bytes(content)
    verdict = next((each for each in verdicts if each.name.decode() == name), None)
    return Trial(damage, name, verdict, answer, answer == right)
