"""An archive of classes is made where there is memory for it, whole or not at all, and asked for once it is there."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from holdfast_spark.class_archive import named_apart, with_archive
from holdfast_spark.class_archive.making import ends_together, free_memory, main
from holdfast_spark.jvm_options import JVM_OPTIONS_KEY

MIB = 2**20
MEMINFO = "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n"


def a_cgroup(directory: Path, limit: str, used: int, inactive: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "memory.max").write_text(f"{limit}\n")
    (directory / "memory.current").write_text(f"{used}\n")
    (directory / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")


@pytest.mark.parametrize(
    ("own", "above", "free"),
    [
        (("max", 0, 0), ("max", 0, 0), 4096 * MIB),
        ((f"{1000 * MIB}", 900 * MIB, 0), ("max", 0, 0), 100 * MIB),
        ((f"{1000 * MIB}", 900 * MIB, 500 * MIB), ("max", 0, 0), 600 * MIB),  # the kernel takes those pages back
        (("max", 0, 0), (f"{2000 * MIB}", 500 * MIB, 0), 1500 * MIB),
        ((f"{9000 * MIB}", 0, 0), (f"{9000 * MIB}", 0, 0), 4096 * MIB),
    ],
)
def test_memory_is_what_machine_and_cgroups_have_left(
    tmp_path: Path, own: tuple[str, int, int], above: tuple[str, int, int], free: int
) -> None:
    base, meminfo = tmp_path / "cgroup", tmp_path / "meminfo"
    meminfo.write_text(MEMINFO)
    a_cgroup(base / "pods", *above)
    a_cgroup(base / "pods/driver", *own)
    assert free_memory("0::/pods/driver\n", base, meminfo) == free


def test_the_memory_of_the_machine_counts_where_nothing_is_known_of_cgroups(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    assert free_memory("1:name=systemd:/\n", tmp_path / "none", tmp_path / "meminfo") == 4096 * MIB


_WRITERS: dict[int, int] = {}
"""The driver's end of each pipe, by the other one."""


@contextmanager
def driver() -> Iterator[IO[bytes]]:
    """The pipe of a driver that lives."""
    reader, writer = os.pipe()
    _WRITERS[reader] = writer
    with open(reader, "rb") as pipe:
        try:
            yield pipe
        finally:
            ended(pipe)


def ended(pipe: IO[bytes]) -> None:
    """End the driver, if it has not ended."""
    writer = _WRITERS.pop(pipe.fileno(), None)
    if writer is not None:
        os.close(writer)


def a_java(directory: Path, line: str) -> Path:
    java = directory / "java"
    java.write_text(
        f"#!/bin/sh\nfor each; do case $each in -XX:SharedArchiveFile=*) made=${{each#*=}};; esac; done\n{line}\n"
    )
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("/jars/a.jar:/jars/b.jar", "/jars/a.jar:/jars/b.jar"),
        ("/jars/a.jar:/jars/b.jar:/jars/a.jar", "/jars/a.jar:/jars/b.jar:/jars/./a.jar"),
        ("/jars/a.jar:/jars/a.jar:/jars/a.jar", "/jars/a.jar:/jars/./a.jar:/jars/././a.jar"),
        ("a.jar:b.jar:a.jar", "a.jar:b.jar:./a.jar"),
        ("/conf/:/jars/a.jar:/conf/", "/conf/:/jars/a.jar:/conf/./"),
        (":/jars/a.jar::/jars/b.jar:", "/jars/a.jar:/jars/b.jar"),
    ],
)
def test_a_jar_that_is_named_again_has_another_name_in_the_archive(given: str, made: str) -> None:
    assert named_apart(given) == made


@pytest.mark.slow
def test_java_uses_an_archive_of_a_class_path_that_names_a_jar_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gain: Spark's launcher names slf4j-api twice, and Java 21 used none of its archives."""
    monkeypatch.setattr("holdfast_spark.class_archive.making.give_way", lambda: None)
    monkeypatch.setattr("holdfast_spark.class_archive.making.free_memory", lambda cgroups: 4096 * MIB)
    monkeypatch.setattr("holdfast_spark.class_archive.making.ends_together", lambda cgroups: False)
    for name in ("First", "Last"):
        (tmp_path / f"{name}.java").write_text(f"class {name} {{ public static void main(String[] given) {{}} }}")
        subprocess.run(["javac", f"{name}.java"], cwd=tmp_path, check=True)
        with zipfile.ZipFile(tmp_path / f"{name}.jar", "w") as jar:
            jar.write(tmp_path / f"{name}.class", f"{name}.class")
    first, last = tmp_path / "First.jar", tmp_path / "Last.jar"
    class_path, listed, archive = f"{first}:{first}:{last}", tmp_path / "list", tmp_path / "classes.jsa"
    subprocess.run(["java", f"-XX:DumpLoadedClassList={listed}", "-cp", class_path, "Last"], check=True)
    with driver() as pipe:
        assert main([str(listed), str(archive), "java", "-cp", named_apart(class_path)], pipe) == 0
    command = ["java", "-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-Xlog:class+load", "-cp", class_path, "Last"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "Last source: shared objects file" in told


@pytest.mark.parametrize(
    ("line", "status", "left"),
    [('echo classes >"$made"', 0, ["classes.jsa", "java"]), ('echo half >"$made"; exit 1', 1, ["java"])],
)
def test_an_archive_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, status: int, left: list[str]
) -> None:
    monkeypatch.setattr("holdfast_spark.class_archive.making.give_way", lambda: None)
    monkeypatch.setattr("holdfast_spark.class_archive.making.free_memory", lambda cgroups: 4096 * MIB)
    monkeypatch.setattr("holdfast_spark.class_archive.making.ends_together", lambda cgroups: False)
    java = a_java(tmp_path, line)
    (tmp_path / "list").touch()
    with driver() as pipe:
        assert main([str(tmp_path / "list"), str(tmp_path / "classes.jsa"), str(java), "-cp", "jars"], pipe) == status
    assert sorted(path.name for path in tmp_path.iterdir()) == [*left, "list"]


def test_java_ends_with_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast_spark.class_archive.making.give_way", lambda: None)
    monkeypatch.setattr("holdfast_spark.class_archive.making.free_memory", lambda cgroups: 4096 * MIB)
    monkeypatch.setattr("holdfast_spark.class_archive.making.ends_together", lambda cgroups: False)
    os.mkfifo(tmp_path / "begun")
    java = a_java(tmp_path, f'echo half >"$made"; echo >{tmp_path}/begun; exec sleep 1000')
    (tmp_path / "list").touch()
    with driver() as pipe, ThreadPoolExecutor() as threads:
        making = threads.submit(main, [str(tmp_path / "list"), str(tmp_path / "classes.jsa"), str(java)], pipe)
        (tmp_path / "begun").read_text()
        ended(pipe)
        assert making.result() == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "java", "list"]


def test_no_java_runs_where_memory_is_scarce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast_spark.class_archive.making.free_memory", lambda cgroups: 1000 * MIB)
    java = a_java(tmp_path, 'echo classes >"$made"')
    with driver() as pipe:
        assert main([str(tmp_path / "list"), str(tmp_path / "classes.jsa"), str(java)], pipe) == 1
    assert not (tmp_path / "classes.jsa").exists()


def test_the_jvm_writes_a_list_until_there_is_an_archive(tmp_path: Path) -> None:
    local = tmp_path / "driver_flights/tmp/spark"
    local.mkdir(parents=True)
    given = {JVM_OPTIONS_KEY: "-Djava.io.tmpdir=/local", "spark.other": "1"}
    assert with_archive(given, local) == {
        **given,
        JVM_OPTIONS_KEY: f"-Djava.io.tmpdir=/local -XX:DumpLoadedClassList={local}/classes.list",
    }
    archive = tmp_path / "driver_flights/classes.jsa"
    archive.write_bytes(b"classes")
    assert with_archive(given, local) == {
        **given,
        JVM_OPTIONS_KEY: f"-Djava.io.tmpdir=/local -XX:+VerifySharedSpaces -Xlog:cds=off -XX:SharedArchiveFile={archive}",
    }
    assert "DumpLoadedClassList" in with_archive(given, local)[JVM_OPTIONS_KEY]  # that JVM did not come up
    assert not archive.exists()


@pytest.mark.parametrize(
    "spoil", [lambda path: path.chmod(0o664), lambda path: os.chown(path, 4711, 0)], ids=["mode", "owner"]
)
def test_a_jvm_runs_no_archive_that_others_can_have_written(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    local = tmp_path / "driver_flights/tmp/spark"
    local.mkdir(parents=True)
    archive = tmp_path / "driver_flights/classes.jsa"
    archive.write_bytes(b"classes")
    spoil(archive)
    assert "SharedArchiveFile" not in with_archive({JVM_OPTIONS_KEY: ""}, local)[JVM_OPTIONS_KEY]
    assert not archive.exists()


@pytest.mark.parametrize(("group", "together"), [("0", False), ("1", True)])
def test_a_container_that_ends_as_a_whole_is_told(tmp_path: Path, group: str, together: bool) -> None:
    (tmp_path / "pods/driver").mkdir(parents=True)
    (tmp_path / "pods/memory.oom.group").write_text(f"{group}\n")
    assert ends_together("0::/pods/driver\n", tmp_path) is together
