"""Make the samples of Flink's checkpoints and savepoints with a real Flink. See README.md beside this.

``python -m tests.data.checkpoints.make_flink JARS DIRECTORY`` runs the job of ``flink/History.java`` in several
configurations and writes ``flink-<sample>.tar.gz`` here: every ``_metadata``, ``listing.txt`` (all other files: name, size,
time) and ``expected.txt`` (what Flink itself reads in each ``_metadata``). JARS is the ``pyflink/lib`` of
``apache-flink-libraries``; DIRECTORY's path stands in the metadata.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_OPEN = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("util", "lang", "time")]
_COMMON = (
    "execution.checkpointing.interval=1s",
    "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION",
)
_ROCKSDB = ("state.backend.type=rocksdb", "execution.checkpointing.incremental=true")
_HASHMAP = ("state.backend.type=hashmap",)
_NO_INLINE = ("execution.checkpointing.data-inline-threshold=0",)
_MERGING = "execution.checkpointing.file-merging"


@dataclass(frozen=True)
class Sample:
    name: str
    settings: tuple[str, ...]
    seconds: int = 5
    retained: int = 2
    savepoints: bool = False


SAMPLES = (
    Sample("incremental", _ROCKSDB, seconds=8, retained=3, savepoints=True),
    Sample("exclusive", (*_HASHMAP, *_NO_INLINE)),
    Sample(
        "changelog",
        (*_ROCKSDB, "state.changelog.enabled=true", "state.changelog.periodic-materialize.interval=2s"),
        seconds=7,
    ),
    Sample("merging", (*_ROCKSDB, *_NO_INLINE, f"{_MERGING}.enabled=true")),
    Sample("merging-across", (*_ROCKSDB, f"{_MERGING}.enabled=true", f"{_MERGING}.across-checkpoint-boundary=true")),
    Sample("finished", (*_HASHMAP, "sample.finite=true")),
    Sample(
        "unaligned",
        (*_HASHMAP, *_NO_INLINE, "sample.slow-ms=8", "execution.checkpointing.unaligned.enabled=true"),
        seconds=8,
    ),
)


class Flink:
    """A Flink made of the jars in a directory, with the classes of ``flink/`` compiled against them."""

    def __init__(self, jars: Path, directory: Path) -> None:
        self._classpath = f"{directory / 'classes'}:{jars}/*"
        sources = [str(source) for source in (_HERE / "flink").glob("*.java")]
        subprocess.run(["javac", "-nowarn", "-d", str(directory / "classes"), "-cp", self._classpath, *sources], check=True)

    def run(self, main: str, *arguments: str) -> str:
        """Run a class and return what it printed."""
        command = ["java", "-Xmx1g", *_OPEN, "-cp", self._classpath, main, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=180).stdout

    def history(self, sample: Sample, root: Path, *settings: str) -> str:
        """Run the job; return its id."""
        storage = [
            f"execution.checkpointing.dir=file://{root}/checkpoints",
            f"state.changelog.storage={'memory' if 'memory' in sample.name else 'filesystem'}",
            f"state.changelog.dstl.dfs.base-path=file://{root}/checkpoints",
            f"execution.checkpointing.num-retained={sample.retained}",
        ]
        savepoints = f"file://{root}/savepoints" if sample.savepoints else "-"
        printed = self.run("History", str(sample.seconds), savepoints, *_COMMON, *storage, *sample.settings, *settings)
        return printed.splitlines()[0].partition(" ")[2]


def main(jars: Path, directory: Path) -> None:
    flink = Flink(jars, directory)
    for sample in SAMPLES:
        root = directory / sample.name
        flink.history(sample, root)
        _pack(flink, sample.name, root)
    _memory(flink, directory / "changelog-memory")
    _claimed(flink, directory / "claimed")
    _versions(flink, directory)


def _memory(flink: Flink, root: Path) -> None:
    sample = Sample("changelog-memory", (*_HASHMAP, "state.changelog.enabled=true", "sample.payload-bytes=0"), 3, retained=1)
    flink.history(sample, root)
    _pack(flink, sample.name, root)


def _claimed(flink: Flink, root: Path) -> None:
    """Three jobs go on from what a first one left: CLAIM, NO_CLAIM, and CLAIM of a native savepoint (FLINK-39964)."""
    first = flink.history(Sample("first", _ROCKSDB, retained=3, savepoints=True), root)
    job = root / "checkpoints" / first
    latest = max(job.glob("chk-*"), key=lambda path: int(path.name[4:]))
    native = min((root / "savepoints").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for path, mode in ((latest, "CLAIM"), (min(job.glob("chk-*")), "NO_CLAIM"), (native, "CLAIM")):
        restore = (f"execution.state-recovery.path=file://{path}", f"execution.state-recovery.claim-mode={mode}")
        flink.history(Sample("next", _ROCKSDB, seconds=2, retained=9), root, *restore)
    _pack(flink, "claimed", root)


def _versions(flink: Flink, directory: Path) -> None:
    """One checkpoint in each version of the format that this Flink can write."""
    root = directory / "versions"
    root.mkdir()
    newest = sorted((directory / "incremental" / "checkpoints").glob("*/chk-*/_metadata"))[-1]
    (root / "expected.txt").write_text(flink.run("Expected", "--versions", str(root), str(newest)))
    with tarfile.open(_HERE / "flink-versions.tar.gz", "w:gz", compresslevel=9) as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, path.name, filter=_anonymous)


def _pack(flink: Flink, name: str, root: Path) -> None:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    metadata = [path for path in files if path.name == "_metadata"]
    directories = sorted(path for path in root.rglob("*") if path.is_dir())
    lines = [f"{path.relative_to(root)}/ 0 {path.stat().st_mtime_ns}" for path in directories]
    lines += [f"{path.relative_to(root)} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    with tarfile.open(_HERE / f"flink-{name}.tar.gz", "w:gz", compresslevel=9) as archive:
        for path in metadata:
            archive.add(path, str(path.relative_to(root)), filter=_anonymous)
        _add_text(archive, "listing.txt", "\n".join(lines) + "\n")
        expected = flink.run("Expected", *map(str, metadata))
        _add_text(archive, "expected.txt", expected.replace(f"metadata {root}/", "metadata "))


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(text.encode())
    archive.addfile(member, io.BytesIO(text.encode()))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
