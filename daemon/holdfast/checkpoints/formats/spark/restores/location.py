"""The files of one checkpoint location by name, and the findings on those that a restart reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.checkpoints.examination import Asking, Wanted
from holdfast.checkpoints.formats.interface import Fault
from holdfast.checkpoints.manifests import Manifest, ManifestKind, Trouble, Unreadable
from holdfast.checkpoints.plans import Listed

_BROKEN = "its bytes are not those that its digest was made of"


@dataclass(slots=True)
class Findings:
    """The files that a restart reads, the faults among them, and remarks on problems that it copes with."""

    reads: list[bytes] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Take up what was found elsewhere."""
        self.reads += other.reads
        self.faults += other.faults
        self.remarks += other.remarks


class Location:
    """The files that were listed below ``path``. ``spoilt`` are names of objects that are known to have wrong content."""

    def __init__(self, path: bytes, listing: Iterable[Listed], spoilt: Collection[bytes]) -> None:
        self.path = path
        self._prefix = path + b"/" if path else b""
        self._spoilt = spoilt
        self._files = {listed.name: listed for listed in listing if not listed.is_directory}

    def whole(self, name: bytes) -> bytes:
        """Return the whole name of ``name``, which is relative to the location; of what is there always the same object."""
        whole = self._prefix + name
        listed = self._files.get(whole)
        return whole if listed is None else listed.name

    def relative(self) -> Iterable[bytes]:
        """Yield the names of all files, relative to the location."""
        skip = len(self._prefix)
        return (name[skip:] for name in self._files)

    def has(self, name: bytes) -> bool:
        """Return whether the file is there."""
        return self._prefix + name in self._files

    def fault(self, name: bytes, size_bytes: int | None = None) -> Fault | None:
        """Say what is wrong with a file, as far as the listing tells; it is to have ``size_bytes`` if that is known."""
        whole = self._prefix + name
        listed = self._files.get(whole)
        if listed is None:
            return Fault(whole, "it is not there", is_missing=True)
        if whole in self._spoilt:
            return Fault(whole, _BROKEN)
        if size_bytes is not None and listed.size_bytes != size_bytes:
            return Fault(whole, f"it has {listed.size_bytes} bytes instead of {size_bytes}")
        return None

    def size_bytes(self, name: bytes) -> int:
        """Return the size of a file that is there."""
        return self._files[self._prefix + name].size_bytes

    def read(self, names: Sequence[bytes], kind: ManifestKind) -> Asking[dict[bytes, Manifest]]:
        """Read files; what is not there or known to be spoilt is ``Unreadable`` without being asked for."""
        found: dict[bytes, Manifest] = {}
        wanted: dict[bytes, bytes] = {}
        for name in names:
            fault = self.fault(name)
            if fault is not None:
                found[name] = Unreadable(Trouble.MISSING if fault.is_missing else Trouble.MALFORMED, fault.why)
            else:
                wanted[name] = self._prefix + name
        if wanted:
            answers = yield [Wanted(whole, kind, self._files[whole].size_bytes) for whole in wanted.values()]
            found.update((name, answers[whole]) for name, whole in wanted.items())
        return found

    def unreadable(self, name: bytes, manifest: Manifest) -> Fault | None:
        """Say what is wrong with a file that was read."""
        fault = self.fault(name)
        if fault is None and isinstance(manifest, Unreadable):
            return Fault(self._prefix + name, str(manifest), manifest.trouble is Trouble.MISSING)
        return fault
