"""Single files of a checkpoint that are taken away, cut short, emptied or flipped; and what verify says of what is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.checkpoints.examination import examined
from holdfast.checkpoints.formats.interface import Restore
from holdfast.checkpoints.reachability.restores import restores
from tests.support.checkpoints.roots import Root

KINDS = ("missing", "cut", "empty", "flipped")


@dataclass(frozen=True)
class Damage:
    """What is done to the file ``name``, relative to the checkpoint."""

    name: str
    kind: str

    def apply(self, checkpoint: Path) -> None:
        """Do it."""
        file = checkpoint / self.name
        content = file.read_bytes()
        if self.kind == "missing":
            file.unlink()
        elif self.kind == "cut":
            file.write_bytes(content[: -max(1, len(content) // 3)])
        elif self.kind == "empty":
            file.write_bytes(b"")
        else:
            at = len(content) // 2
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def damages(names: Iterable[str]) -> Iterator[Damage]:
    """Yield each damage of each file; the kinds begin with another one each time, so that each so many take all kinds."""
    for number, name in enumerate(names):
        for kind in KINDS[number % 4 :] + KINDS[: number % 4]:
            yield Damage(name, kind)


def files_below(directory: Path) -> list[str]:
    """Return the names of all files, relative to ``directory``."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def verified(root: Path, spoilt: str = "") -> list[Restore]:
    """Return what verify says of all below ``root``; ``spoilt`` is a file whose bytes it has compared with its digest."""
    laid = Root.of_directory(root)
    return examined(restores(laid.listing(), spoilt={spoilt.encode()} - {b""}), laid.open)
