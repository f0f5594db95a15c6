"""A streaming query of Spark as it writes batches and state, fails, purges and leaves things behind, in a root in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.checkpoints.roots import Root, uuid
from tests.support.spark import files as spark_files


@dataclass(frozen=True)
class Shape:
    """How the query runs. ``provider`` is ``rocksdb`` or ``hdfs``."""

    provider: str
    checkpoint_format: int
    has_changelogs: bool
    stores: tuple[str, ...]
    min_batches: int
    deltas_for_snapshot: int


@dataclass
class Store:
    """A state store as its executor sees it: which version it has loaded, and how its files are called in the store."""

    directory: str
    version: int = 0
    unique_id: str = ""
    lineage: list[tuple[int, str]] = field(default_factory=list)
    """From the last snapshot to the loaded version."""
    ssts: list[str] = field(default_factory=list)
    """What the next snapshot may use again."""
    pending: tuple[int, str, list[tuple[int, str]]] | None = None
    """A snapshot that was made and is to be uploaded by maintenance."""


class Query:
    """One query below ``q/``."""

    def __init__(self, shape: Shape) -> None:
        self.root = Root()
        self.shape = shape
        self.batch = 0
        self.is_running = True
        self._names = 0
        self._committed: dict[int, list[str]] = {}
        self.snapshots: dict[str, list[str]] = {}
        """The SSTs of every snapshot ever written, by its name."""
        self.root.write("q/metadata")
        self.stores = [Store(f"q/state/0/0/{name}".rstrip("/")) for name in shape.stores]

    def in_use(self) -> set[bytes]:
        """The SSTs that a running executor will name in its next snapshot without sending them again."""
        if not self.is_running:
            return set()
        return {
            f"{store.directory}/SSTs/{sst}".encode() for store in self.stores for sst in store.ssts
        } & self.root.files.keys()

    def run(self, lost: int = 0, *, commits: bool = True) -> None:
        """Run a batch. ``lost`` attempts write its state before those that count; without a commit the query dies."""
        self.root.write(f"q/offsets/{self.batch}", b"v1\n{}")
        version = self.batch + 1
        for store in self.stores:
            for _ in range(lost):
                self._write_version(store, version, self._uuid(), list(store.ssts))
        unique_ids = [self._uuid() for _ in self.stores]
        for store, unique_id in zip(self.stores, unique_ids, strict=True):
            if not commits:
                self._write_version(store, version, unique_id, list(store.ssts))
                continue
            self._write_version(store, version, unique_id, store.ssts)
            store.version, store.unique_id = version, unique_id
            store.lineage.append((version, unique_id))
            if self._is_due(store):
                store.pending = (version, unique_id, list(store.lineage))
        if not commits:
            self.is_running = False
            return
        self._committed[self.batch] = unique_ids
        is_format_2 = self.shape.checkpoint_format == 2
        self.root.write(f"q/commits/{self.batch}", spark_files.commit({0: [unique_ids]} if is_format_2 else None))
        self.batch += 1

    def maintain(self) -> None:
        """Upload the newest snapshot of each store, and delete versions as Spark does."""
        for store in self.stores:
            if store.pending is not None:
                version, unique_id, lineage = store.pending
                store.pending = None
                self._write_snapshot(store, version, unique_id, store.ssts)
                store.lineage = [item for item in store.lineage if item[0] >= version] or lineage[-1:]
            self._delete_old_versions(store)

    def purge(self) -> None:
        for batch in range(self.batch - 1 - self.shape.min_batches):
            self.root.delete([f"q/{log}/{batch}".encode() for log in ("offsets", "commits")])

    def crash(self) -> None:
        self.is_running = False

    def restart(self) -> None:
        """Load what the last commit says; what was made and not uploaded is gone."""
        self.is_running = True
        for index, store in enumerate(self.stores):
            store.pending = None
            store.version = self.batch
            store.unique_id = self._committed[self.batch - 1][index] if self.batch else ""
            history = [(batch + 1, ids[index]) for batch, ids in self._committed.items() if batch < self.batch]
            base = self._newest_snapshot(store, history)
            store.lineage = [item for item in history if item[0] >= base]
            store.ssts = []
            for version, unique_id in history:
                if version == base:
                    store.ssts = list(self.snapshots.get(self._name(store, version, unique_id, "zip"), []))

    def leave_behind(self) -> None:
        """What killed writers leave: temporary files, half an SST, checksums."""
        store = self.stores[0].directory
        number = self.batch + 1
        for name in (
            f"q/offsets/.{number}.{self._uuid()}.tmp",
            f"{store}/.{number}.zip.{self._uuid()}.TID3.tmp",
            f"{store}/..{number}.zip.{self._uuid()}.TID4.tmp.crc",
            f"{store}/SSTs/000099-{self._uuid()}.sst",
            f"{store}/{number}_{self._uuid()}.changelog.crc",
            f"{store}/.{number + 7}.delta.crc",
        ):
            self.root.write(name)

    # --- files --------------------------------------------------------------------------------------------------------

    def _write_version(self, store: Store, version: int, unique_id: str, ssts: list[str]) -> None:
        if self.shape.provider == "hdfs":
            self.root.write(f"{store.directory}/{version}.delta")
        elif self.shape.has_changelogs:
            is_format_2 = self.shape.checkpoint_format == 2
            content = spark_files.changelog(store.lineage) if is_format_2 else spark_files.changelog(version=1)
            self.root.write(self._name(store, version, unique_id, "changelog"), content)
        else:
            self._write_snapshot(store, version, unique_id, ssts)

    def _write_snapshot(self, store: Store, version: int, unique_id: str, ssts: list[str]) -> None:
        """Write a snapshot of ``ssts``, of which the oldest was compacted away, and a new one. They become its SSTs."""
        if self.shape.provider == "hdfs":
            self.root.write(f"{store.directory}/{version}.snapshot")
            return
        if len(ssts) > 2:
            del ssts[0]
        ssts.append(f"{version:06}-{self._uuid()}.sst")
        self.root.write(f"{store.directory}/SSTs/{ssts[-1]}")
        name = self._name(store, version, unique_id, "zip")
        self.root.write(name, spark_files.snapshot(ssts))
        self.snapshots[name] = list(ssts)

    def _is_due(self, store: Store) -> bool:
        is_by_maintenance = self.shape.provider == "hdfs" or self.shape.has_changelogs
        return is_by_maintenance and len(store.lineage) > self.shape.deltas_for_snapshot

    def _newest_snapshot(self, store: Store, history: list[tuple[int, str]]) -> int:
        kind = "snapshot" if self.shape.provider == "hdfs" else "zip"
        there = [
            version
            for version, unique_id in history
            if self._name(store, version, unique_id, kind).encode() in self.root.files
        ]
        return max(there, default=0)

    def _delete_old_versions(self, store: Store) -> None:
        """Back to the newest snapshot that is not above the newest minus the number of batches to retain."""
        kind = b".snapshot" if self.shape.provider == "hdfs" else b".zip"
        directory = store.directory.encode() + b"/"
        numbers = {
            name: int(last.split(b".")[0].split(b"_")[0])
            for name in self.root.files
            if name.startswith(directory) and (last := name.removeprefix(directory))[:1].isdigit() and b"/" not in last
        }
        snapshots = sorted({number for name, number in numbers.items() if name.endswith(kind)})
        if not snapshots:
            return
        base = max((each for each in snapshots if each <= snapshots[-1] - self.shape.min_batches + 1), default=0)
        old = {name for name, number in numbers.items() if number < base}
        still_named = {sst for name in numbers.keys() - old for sst in self.snapshots.get(name.decode(), ())}
        for name in old:
            for sst in self.snapshots.get(name.decode(), ()):
                if sst not in still_named:
                    self.root.delete([directory + b"SSTs/" + sst.encode()])
        self.root.delete(old)

    def _name(self, store: Store, version: int, unique_id: str, ending: str) -> str:
        attempt = f"_{unique_id}" if self.shape.checkpoint_format == 2 else ""
        return f"{store.directory}/{version}{attempt}.{ending}"

    def _uuid(self) -> str:
        self._names += 1
        return uuid(self._names)
