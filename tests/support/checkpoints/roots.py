"""A checkpoint root in memory: files with times, a listing of it, and the execution of a plan."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from holdfast.checkpoints.manifests import Manifest
from holdfast.checkpoints.reachability import Examination, Listed, Plan, Policy, Reason, Wanted, examined, sweep
from tests.support.checkpoints.samples import Sample

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
START = 1_700_000_000 * SECOND


def uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def reasons(plan: Plan) -> dict[str, Reason]:
    """Return why each name goes."""
    return {entry.name.decode(): entry.reason for entry in plan.entries}


class Root:
    """``now_ns`` is the store's clock; tests move it."""

    def __init__(self) -> None:
        self.now_ns = START
        self.files: dict[bytes, tuple[bytes, int]] = {}
        self.directories: dict[bytes, int] = {}

    @classmethod
    def of_sample(cls, sample: Sample) -> Root:
        """A sample's files, long after they were written. What the sample has no content of is empty."""
        root = cls()
        root.files = {name: (file.content or b"", file.mtime_ns) for name, file in sample.files.items()}
        root.directories = {name: mtime_ns for name, mtime_ns in sample.directories.items() if name}
        root.now_ns = max(mtime_ns for _, mtime_ns in root.files.values()) + 365 * DAY
        return root

    @classmethod
    def of_directory(cls, directory: Path) -> Root:
        """The files below ``directory``, with what is in them."""
        root = cls()
        files = [path for path in directory.rglob("*") if path.is_file()]
        root.files = {
            str(path.relative_to(directory)).encode(): (path.read_bytes(), path.stat().st_mtime_ns) for path in files
        }
        return root

    def write(self, name: str | bytes, content: bytes = b"x", *, age_ns: int = 0) -> bytes:
        name = name.encode() if isinstance(name, str) else name
        self.files[name] = (content, self.now_ns - age_ns)
        return name

    def mkdir(self, name: str | bytes, *, age_ns: int = 0) -> bytes:
        name = name.encode() if isinstance(name, str) else name
        self.directories[name] = self.now_ns - age_ns
        return name

    def delete(self, names: Iterable[bytes]) -> None:
        for name in names:
            self.files.pop(name, None)
            self.directories.pop(name, None)

    def listing(self) -> list[Listed]:
        files = [Listed(name, len(content), mtime_ns) for name, (content, mtime_ns) in self.files.items()]
        return files + [Listed(name, 0, mtime_ns, is_directory=True) for name, mtime_ns in self.directories.items()]

    def open(self, name: bytes) -> BinaryIO:
        if name not in self.files:
            raise FileNotFoundError(name)
        return io.BytesIO(self.files[name][0])

    def answers(self, wanted: Iterable[Wanted]) -> dict[bytes, Manifest]:
        return {each.name: each.kind.read(self.open(each.name), each.size_bytes) for each in wanted}

    def sweep(self, policy: Policy) -> Plan:
        return self.carry_out(sweep(self.listing(), policy, self.now_ns))

    def carry_out(self, examination: Examination[Plan]) -> Plan:
        return examined(examination, self.open)

    def execute(self, plan: Plan, first: int | None = None) -> None:
        """Delete what is planned, or only the first entries, as a sweep does that is cut off."""
        self.delete([entry.name for entry in plan.entries[:first]])
