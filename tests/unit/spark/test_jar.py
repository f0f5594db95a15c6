"""``holdfast-spark.jar``: what it is compiled against, and that a wheel carries it."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from holdfast_spark.linking import jar_path, linking_settings
from tests.support.packaging.wheel_builds import CHECKOUT, COMPILERS, built, copied, with_programs

pytestmark = pytest.mark.slow

pyspark = pytest.importorskip("pyspark")

SOURCES = CHECKOUT / "spark_integration/jvm"
JAVA_8 = 52
IN_WHEEL = "holdfast_spark_jvm/holdfast-spark.jar"


def classes_of(jar: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as packed:
        return {name: packed.read(name) for name in packed.namelist() if name.endswith(".class")}


def test_it_is_what_comes_of_spark_itself(tmp_path: Path) -> None:
    """The tree has signatures alone. Compiled against the newest Spark itself, each class has the same bytes."""
    jar = jar_path()
    assert jar is not None
    jars = Path(pyspark.__file__).parent / "jars/*"
    sources = [str(path) for path in (SOURCES / "src").rglob("*.java")]
    subprocess.run(
        ["javac", "--release", "8", "-nowarn", "-cp", jars, "-d", tmp_path, *sources], check=True, capture_output=True
    )
    compiled = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*.class")}
    assert classes_of(jar) == compiled
    assert {int.from_bytes(each[6:8], "big") for each in compiled.values()} == {JAVA_8}


def test_a_wheel_of_a_source_archive_carries_it_and_all_else(tmp_path: Path) -> None:
    (tmp_path / "checkout").mkdir()
    archive, _ = built("sdist", copied(tmp_path / "checkout"))
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    wheel, _ = built("bdist_wheel", tmp_path / archive.name.removesuffix(".tar.gz"))
    jar = jar_path()
    assert jar is not None
    with zipfile.ZipFile(wheel) as packed:
        assert packed.read(IN_WHEEL) == jar.read_bytes()
        names = {name for name in packed.namelist() if name.startswith(("holdfast/", "holdfast_spark/"))}
    top = {CHECKOUT / "daemon": "holdfast", CHECKOUT / "spark_integration": "holdfast_spark"}
    assert names == {
        str(path.relative_to(parent))
        for parent, package in top.items()
        for path in (parent / package).rglob("*")
        if path.is_file() and path.suffix not in (".c", ".h", ".pyc")
    }


def test_without_a_jdk_a_wheel_is_built_and_says_what_is_missing(tmp_path: Path) -> None:
    """There is a ``PATH`` with what compiles the C module, and no Java on it."""
    source = tmp_path / "source"
    source.mkdir()
    wheel, said = built("bdist_wheel", copied(source), with_programs(tmp_path / "bin", COMPILERS))
    with zipfile.ZipFile(wheel) as packed:
        assert IN_WHEEL not in packed.namelist()
    assert "holdfast-spark.jar is not built: there is no Java compiler" in said


def test_without_the_jar_one_line_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("holdfast_spark.linking._is_jvm_running", lambda: False)
    monkeypatch.setattr("holdfast_spark.linking.jar_path", lambda: None)
    assert linking_settings("/mnt/holdfast", ["checkpoints"]) == {}
    (record,) = caplog.records
    assert "built without holdfast-spark.jar" in record.getMessage()


def test_a_jvm_to_come_gets_it_behind_its_own_class_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast_spark.linking._is_jvm_running", lambda: False)
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/opt/own.jar")
    for _ in range(2):
        settings = linking_settings("/mnt/holdfast", ["checkpoints", "search"])
    assert settings["spark.hadoop.fs.holdfast.stores"] == "/mnt/holdfast/checkpoints,/mnt/holdfast/search"
    assert os.environ["SPARK_DIST_CLASSPATH"] == f"/opt/own.jar:{jar_path()}"
