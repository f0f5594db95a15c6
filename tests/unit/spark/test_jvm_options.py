"""Options of a driver's JVM are added to those of the job, and none is in the place of one that the job has chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from holdfast_spark.jvm_options import JVM_OPTIONS_KEY, with_short_start

OURS = {JVM_OPTIONS_KEY: "-Djava.io.tmpdir=/local"}
CLASSES = "-XX:MetaspaceSize=256m"
HEAP = "-XX:NewSize=128m -XX:InitialRAMPercentage=12.5"


@pytest.fixture(autouse=True)
def nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment and properties that say nothing."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)


def options(given: dict[str, object] | None = None) -> str:
    made = with_short_start({**OURS, "spark.other": "1"}, given or {})
    assert made.pop("spark.other") == "1"
    return made[JVM_OPTIONS_KEY].removeprefix(OURS[JVM_OPTIONS_KEY]).strip()


def test_a_job_that_says_nothing_gets_all() -> None:
    assert options() == f"{CLASSES} {HEAP}"


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ("-Dmy.job=1", f"{CLASSES} {HEAP}"),
        ("-XX:MaxMetaspaceSize=128m", HEAP),
        ("-XX:+UseSerialGC", CLASSES),
        ("-Xmn64m", CLASSES),
        ("-Xms2g -XX:MetaspaceSize=1g", ""),
        ("-XX:InitialRAMPercentage=50", CLASSES),
    ],
)
def test_what_the_job_has_chosen_stays(own: str, added: str) -> None:
    assert options({JVM_OPTIONS_KEY: own}) == f"{added} {own}".strip()


def test_defaults_of_an_administrator_are_not_repeated_but_count() -> None:
    assert options({"spark.driver.defaultJavaOptions": "-XX:+UseZGC"}) == CLASSES


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
def test_the_environment_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "-XX:MetaspaceSize=64m -Xms1g")
    assert options() == ""


@pytest.mark.parametrize("name", ["SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"])
def test_what_is_given_to_spark_submit_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "--conf spark.driver.defaultJavaOptions=-XX:+AlwaysPreTouch pyspark-shell")
    assert options() == CLASSES


def test_the_properties_file_counts_and_the_job_comes_before_it(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"# comment\n  {JVM_OPTIONS_KEY} -Dfrom.file=a=b -Xmn64m \n")
    assert options() == f"{CLASSES} -Dfrom.file=a=b -Xmn64m"
    assert options({JVM_OPTIONS_KEY: "-Dfrom.job=1"}) == f"{CLASSES} {HEAP} -Dfrom.job=1"


def test_another_properties_file_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"{JVM_OPTIONS_KEY} -Xmn64m\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file /job.conf pyspark-shell")
    assert options() == f"{CLASSES} {HEAP}"
