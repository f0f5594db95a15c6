"""``LinkingFileSystem`` of ``holdfast-spark.jar``: what it links, what it copies as Hadoop does, what it never touches."""

from __future__ import annotations

import os
import stat
import uuid
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from holdfast_spark.linking import jar_path, linking_settings
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.stores.s3 import Versitygw

CLASS = "io.holdfast.spark.LinkingFileSystem"


@cache  # py4j keeps the methods of a class by its name
def linking_class(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    jvm, jar = context._jvm, jar_path()
    assert jar is not None
    urls = context._gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.net.URL(jar.as_uri())
    return jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader()).loadClass(CLASS)


class FileSystem:
    """One of Hadoop's file systems for ``file:``, in the JVM of the tests' session."""

    def __init__(self, spark: SparkSession, stores: list[Path] | None) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._hadoop = jvm.org.apache.hadoop
        configuration = self._hadoop.conf.Configuration()
        if stores is None:
            self.own = self._hadoop.fs.LocalFileSystem()
        else:
            configuration.set("fs.holdfast.stores", ",".join(map(str, stores)))
            self.own = linking_class(spark).newInstance()
        self.own.initialize(jvm.java.net.URI("file:///"), configuration)

    def path(self, path: Path) -> Any:
        return self._hadoop.fs.Path(path.as_uri())

    def to_local(self, source: Path, target: Path, *, delete: bool = False) -> None:
        self.own.copyToLocalFile(delete, self.path(source), self.path(target))

    def from_local(self, source: Path, target: Path, *, delete: bool = False) -> None:
        self.own.copyFromLocalFile(delete, self.path(source), self.path(target))

    def write(self, path: Path, text: str) -> None:
        stream = self.own.create(self.path(path), True)
        stream.writeBytes(text)
        stream.close()

    def read(self, path: Path) -> str:
        stream = self.own.open(self.path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()


def is_one_file(one: Path, other: Path) -> bool:
    return one.stat().st_ino == other.stat().st_ino


def tree(directory: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        is_file = stat.S_ISREG(status.st_mode)
        found[str(path.relative_to(directory))] = (status.st_mode, path.read_bytes() if is_file else b"")
    return found


def test_files_are_linked_between_a_store_and_a_working_directory_alone(
    spark: SparkSession, node: Node, workspace: Path
) -> None:
    """Everything else is copied, with Hadoop's checksum file where that belongs."""
    fs = FileSystem(spark, [node.checkpoints, node.blobs])
    stored, local = node.checkpoints / "q/SSTs/1.sst", node.work / "driver_a/tmp/spark/1.sst"
    (node.work / "driver_a").mkdir()
    fs.write(stored, "state")
    assert (fs.read(stored), stat.S_IMODE(stored.stat().st_mode)) == ("state", 0o644)
    fs.to_local(stored, local)  # into a directory that is not there yet
    assert is_one_file(stored, local)
    fs.from_local(local, node.checkpoints / "q/SSTs")  # into a directory, where it is 1.sst already
    assert (stored.read_text(), local.read_text()) == ("state", "state")
    snapshot = local.with_name("2.sst")
    snapshot.write_text("snapshot")
    local.with_name(".2.sst.crc").write_text("of an earlier file")
    fs.from_local(snapshot, node.checkpoints / "q/SSTs/2.sst")
    assert is_one_file(snapshot, node.checkpoints / "q/SSTs/2.sst")
    assert (workspace / "remote/checkpoints/q/SSTs/2.sst").read_text() == "snapshot"
    fs.to_local(node.checkpoints / "q/SSTs/2.sst", local.with_name("moved.sst"), delete=True)
    assert local.with_name("moved.sst").read_text() == "snapshot"
    assert not (node.checkpoints / "q/SSTs/2.sst").exists()
    assert not list(node.checkpoints.rglob(".*.crc"))

    fs.to_local(stored, workspace / "elsewhere/1.sst")  # another disk
    assert (workspace / "elsewhere/1.sst").read_text() == "state"
    assert (workspace / "elsewhere/.1.sst.crc").exists()
    fs.to_local(stored, node.blobs / "1.sst")  # from store to store
    assert not is_one_file(stored, node.blobs / "1.sst")
    fs.from_local(local.with_name("moved.sst"), local.with_name("copy.sst"))  # within the working directory
    assert not is_one_file(local.with_name("moved.sst"), local.with_name("copy.sst"))


def test_a_file_of_a_made_up_name_costs_the_store_its_put(
    spark: SparkSession, make_node: NodeFactory, place: Versitygw
) -> None:
    """Whatever refuses its link leaves nothing behind."""
    node = make_node("a", checkpoints=place.below("checkpoints").url, blobs=place.below("blobs").url)
    node.environment.update(place.environment)
    fs = FileSystem(spark, [node.start().checkpoints])
    (node.work / "driver_a").mkdir()
    local, ssts = node.work / "driver_a/000020.sst", node.checkpoints / "q/state/0/0/SSTs"
    local.write_text("state")
    ssts.mkdir(parents=True)
    names = [f"000020-{uuid.uuid4()}.sst" for _ in range(3)]
    place.clear_log()
    fs.from_local(local, ssts / names[0])
    assert place.requests() == {"PutObject": 1}
    assert is_one_file(local, ssts / names[0])
    fs.from_local(local, ssts / names[0])  # once more: both names are one file's already
    fs.from_local(node.mountpoint.parent / "daemon.log", ssts / names[1])  # another disk
    fs.from_local(local, ssts / names[2], delete=True)
    assert sorted(os.listdir(ssts)) == sorted(names)
    assert (ssts / names[2]).read_text() == "state"
    assert not local.exists()


def test_what_refuses_a_link_is_copied_or_told_as_hadoop_tells_it(spark: SparkSession, node: Node) -> None:
    fs = FileSystem(spark, [node.checkpoints])
    (node.work / "driver_a").mkdir()
    stored, local = node.checkpoints / "q/1.sst", node.work / "driver_a/1.sst"
    fs.write(stored, "new")
    local.write_text("old, and longer")
    fs.to_local(stored, local)  # EEXIST
    assert (local.read_text(), is_one_file(stored, local)) == ("new", False)
    many = node.work / "driver_a/many"
    many.mkdir()
    for number in range(999):
        os.link(stored, many / str(number))
    fs.to_local(stored, local.with_name("2.sst"))  # EMLINK
    assert (local.with_name("2.sst").read_text(), is_one_file(stored, local.with_name("2.sst"))) == ("new", False)
    (node.checkpoints / "q/commits").mkdir()
    fs.from_local(local, node.checkpoints / "q/commits/0")
    fs.from_local(local, node.checkpoints / "q/directory/1.sst")
    with pytest.raises(Py4JJavaError, match="File exists"):
        fs.from_local(local.with_name("2.sst"), node.checkpoints / "q/commits/0")  # written once
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        fs.to_local(node.checkpoints / "q/nothing.sst", local.with_name("3.sst"))
    fs.to_local(node.checkpoints / "q/directory", local.with_name("directory"))
    assert (local.with_name("directory") / "1.sst").read_text() == "new"


def test_outside_of_the_stores_all_is_as_without_it(spark: SparkSession, workspace: Path) -> None:
    made = []
    for name, stores in (("hadoop", None), ("linking", [workspace / "sto"])):
        fs, at = FileSystem(spark, stores), workspace / f"store-{name}"
        at.mkdir()
        fs.write(at / "a/1", "one")
        fs.write(at / "a/1", "once more")
        fs.to_local(at / "a/1", at / "b/1")
        fs.from_local(at / "a", at / "c")
        fs.from_local(at / "b/1", at / "a", delete=True)
        (at / "link").symlink_to("a/1")
        fs.to_local(at / "link", at / "d/2")
        fs.own.rename(fs.path(at / "a/1"), fs.path(at / "e"))
        fs.own.delete(fs.path(at / "c"), True)
        fs.own.setPermission(fs.path(at / "e"), fs._hadoop.fs.permission.FsPermission("600"))
        assert fs.read(at / "e") == "once more"
        with (at / "e").open("r+") as file:
            file.write("O")
        with pytest.raises(Py4JJavaError, match="ChecksumException"):
            fs.read(at / "e")
        made.append(tree(at))
    assert made[0] == made[1]


def test_a_jvm_that_runs_without_the_jar_copies_and_one_line_says_so(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    assert linking_settings("/mnt/holdfast", ["checkpoints"]) == {}
    (record,) = caplog.records
    assert record.getMessage().startswith("Spark copies state files instead of linking them: the JVM runs already")
    assert str(jar_path()) in record.getMessage()
