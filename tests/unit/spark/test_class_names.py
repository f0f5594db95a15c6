"""A JVM writes down which classes it has loaded; the next one loads them without initializing any."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast_spark import class_names
from holdfast_spark.class_names import PARTS, keep_class_names, left_out, load_known_classes, names_path
from holdfast_spark.linking import jar_path

PROGRAM = """
import io.holdfast.spark.ClassNames;

public class Program {
    static class Loud { static { System.out.println("initialized"); } }
    static class Quiet extends Loud { Missing field; Quiet(Missing argument) {} }
    static class Missing {}

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 1) {
            ClassNames.load(arguments[1], Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3])).join();
        }
        Runnable nameless = () -> {};
        nameless.run();
        System.out.println(ClassNames.write(arguments[0]));
    }
}
"""


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """Spark's own directory in a working directory."""
    directory = tmp_path / "driver_a/tmp/spark"
    directory.mkdir(parents=True)
    return directory


def run(directory: Path, *arguments: str) -> list[str]:
    jar = jar_path()
    assert jar is not None
    command = ["java", "-XX:ActiveProcessorCount=2", "-cp", f"{jar}:{directory}", "Program", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the program's classes."""
    directory = tmp_path_factory.mktemp("program")
    (directory / "Program.java").write_text(PROGRAM)
    subprocess.run(["javac", "-cp", str(jar_path()), "Program.java"], cwd=directory, check=True)
    return directory


@pytest.mark.slow
def test_known_classes_are_loaded_and_linked_but_not_initialized(tmp_path: Path, program: Path) -> None:
    shutil.copytree(program, tmp_path, dirs_exist_ok=True)
    (count,) = run(tmp_path, "first")
    first = (tmp_path / "first").read_text().splitlines()
    assert len(first) == len(set(first)) == int(count)
    assert {"Program", "io.holdfast.spark.ClassNames", "java.lang.String"} <= set(first)
    assert not [name for name in first if "$$Lambda" in name or "/" in name or name.startswith("[")]
    assert not {"Program$Loud", "Program$Quiet"} & set(first)

    known = ["no.such.Name", "", "[broken", "Program$Quiet", "java.lang.String", "Program$Missing"]
    (tmp_path / "known").write_text("\n".join(known))
    (tmp_path / "Program$Missing.class").unlink()
    assert len(run(tmp_path, "second", "known", "2", "-1")) == len(run(tmp_path, "third", "not-there", "2", "0")) == 1
    second, third = (set((tmp_path / name).read_text().splitlines()) for name in ("second", "third"))
    assert "Program$Loud" in second
    assert not {"no.such.Name", "Program$Missing"} & second
    assert "Program$Loud" not in third


@pytest.mark.slow
def test_one_processor_has_nothing_to_load_ahead(tmp_path: Path, program: Path) -> None:
    (tmp_path / "known").write_text("Program$Loud\n")
    class_path = f"{jar_path()}:{program}"
    command = ["java", "-XX:ActiveProcessorCount=1", "-cp", class_path, "Program", "written", "known", "2", "-1"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert "Program$Loud" not in (tmp_path / "written").read_text().splitlines()


@pytest.mark.slow
def test_the_part_that_is_left_out_keeps_only_what_is_needed(tmp_path: Path, program: Path) -> None:
    shutil.copytree(program, tmp_path, dirs_exist_ok=True)
    unneeded, needed = "Program$Loud", "java.util.regex.Pattern"
    (tmp_path / "known").write_text(f"{unneeded}\n{needed}\n")
    part = _hash_code(unneeded) % PARTS
    run(tmp_path, "its", "known", str(PARTS), str(part))
    run(tmp_path, "another", "known", str(PARTS), str((part + 1) % PARTS))
    run(tmp_path, "of_needed", "known", str(PARTS), str(_hash_code(needed) % PARTS))
    its, another, of_needed = ((tmp_path / name).read_text().splitlines() for name in ("its", "another", "of_needed"))
    assert unneeded not in its
    assert unneeded in another
    assert needed in its
    assert needed in of_needed


def _hash_code(text: str) -> int:
    """Return what Java's ``String.hashCode`` does, but for the sign, which leaves the rest of a division by 16 as it is."""
    code = 0
    for character in text:
        code = (31 * code + ord(character)) % 2**32
    return code


def test_only_a_driver_that_writes_leaves_a_part_out(local: Path) -> None:
    names = names_path(local)
    names.touch()
    assert {left_out(names) for _ in range(100)} == {-1}
    then = time.time() - 90_000
    os.utime(names, (then, then))
    assert {left_out(names) for _ in range(2_000)} == set(range(PARTS))


def test_the_names_outlive_the_directory_that_is_emptied(local: Path) -> None:
    assert names_path(local) == local.parents[1] / "classes.names"


def test_without_names_no_jvm_is_started_for_them(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    load_known_classes(local, {})


@pytest.mark.parametrize(
    ("environment", "options"),
    [({"SPARK_REMOTE": "sc://host"}, {}), ({"SPARK_CONNECT_MODE_ENABLED": "1"}, {}), ({}, {"spark.remote": "sc://host"})],
)
def test_a_client_of_spark_connect_has_no_jvm(
    local: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], options: dict[str, object]
) -> None:
    names_path(local).write_text("java.lang.String\n")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", lambda **_: pytest.fail("a JVM was started"))
    load_known_classes(local, options)


def test_pyspark_without_a_jvm_has_no_classes_to_load(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names_path(local).write_text("java.lang.String\n")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    load_known_classes(local, {})


@pytest.mark.parametrize(("name", "value"), [("SPARK_API_MODE", "classic"), ("SPARK_CONNECT_MODE", "0")])
def test_a_session_that_is_not_connects_has_a_jvm(
    local: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    names_path(local).write_text("java.lang.String\n")
    monkeypatch.setenv(name, value)
    started: list[object] = []
    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", lambda **given: started.append(given))
    load_known_classes(local, {})
    assert len(started) == 1


@pytest.mark.parametrize(("age_seconds", "is_written"), [(None, True), (60, False), (90_000, True), (-60, True)])
def test_names_are_written_if_there_are_none_of_the_last_day(
    local: Path, monkeypatch: pytest.MonkeyPatch, age_seconds: float | None, is_written: bool
) -> None:
    if age_seconds is not None:
        names_path(local).write_text("java.lang.String\n")
        then = time.time() - age_seconds
        os.utime(names_path(local), (then, then))
    waiting = []
    monkeypatch.setattr(class_names, "after_batches", lambda _, action: waiting.append(action))

    class Session:
        _jsparkSession = object()  # noqa: N815 Spark's name

    keep_class_names(Session(), local)  # type: ignore[arg-type]
    assert len(waiting) == is_written
