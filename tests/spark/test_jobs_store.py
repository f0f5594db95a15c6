"""The jobs over one store with everything in it: scrubbed, warmed, added up; each from the same inventory."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.digest import fingerprint_of_buffer
from holdfast.errors import RemoteRefusedError
from holdfast.remote import UploadSource
from holdfast_spark.jobs import inventory, job_command, orphans, scrub, usage, warm
from holdfast_spark.jobs.computed_once import holding
from holdfast_spark.jobs.inventory_files import Inventory
from holdfast_spark.stores import StoreAddress
from tests.spark.running import run
from tests.support.checkpoints import garbage, samples
from tests.support.checkpoints.roots import Root
from tests.support.daemons.node import wait_until
from tests.support.spark.restore import Checkpoint, Restorable

pytestmark = pytest.mark.timeout(1800)
QUERIES = ("spark-rocksdb-1", "spark-rocksdb-1-changelog", "spark-rocksdb-2-changelog", "spark-join-2", "spark-hdfs")
NODES = ("red", "green", "blue")


def test_a_scrub_finds_what_is_rotten_and_goes_on_where_it_was_stopped(
    spark: SparkSession,
    store_directory: Path,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("holdfast_spark.jobs.inventory_files.OBJECTS_PER_FILE", 10)
    monkeypatch.setattr("holdfast_spark.jobs.scrub.OBJECTS_PER_FILE", 10)
    url = f"file://{store_directory}"
    store = StoreAddress(url).open()
    for number in range(30):
        data = b"%d" % number * 100
        metadata = fingerprint_of_buffer(data).metadata() if number else {}
        store.write(f"objects/{number}", UploadSource(len(data), data=data), metadata, create_only=False)
    with (store_directory / "objects/7").open("r+b") as file:
        file.write(b"rotten")
    run(inventory, spark, url, workspace / "inventory")
    results = workspace / "results"

    def stop_after_the_first_batch() -> None:
        wait_until(lambda: (results / "progress/commits/0").exists())
        for query in spark.streams.active:
            query.stop()

    stopper = threading.Thread(target=stop_after_the_first_batch)
    stopper.start()
    arguments = [url, str(workspace / "inventory"), str(results)]
    scrub.main([*arguments, "--objects-per-second", "3"])
    stopper.join()
    before = scrub.results(spark, str(results)).count()
    assert 0 < before < 30
    capsys.readouterr()

    assert scrub.main(arguments) == 1, "something is corrupt"
    found = scrub.results(spark, str(results)).collect()
    assert sorted(row.key for row in found) == sorted(f"objects/{number}" for number in range(30)), "each once"
    assert {row.key for row in found if row.outcome == "corrupt"} == {"objects/7"}
    assert {row.key for row in found if row.outcome == "without digest"} == {"objects/0"}
    shown = capsys.readouterr().out
    assert re.search(r"intact +28 ", shown)
    assert "corrupt: objects/7: expected " in shown
    second = workspace / "inventory-2"
    run(inventory, spark, url, second)
    assert scrub.main([url, str(second), str(results)]) == 1
    assert "has results of another inventory" in capsys.readouterr().err


def test_what_is_warmed_restores_every_query_and_moves_little(
    spark: SparkSession, store_directory: Path, workspace: Path
) -> None:
    roots = {name: Root.of_sample(samples.sample(name)) for name in QUERIES}
    for name, root in roots.items():
        garbage.write(root, store_directory / name)
    url = f"file://{store_directory}"
    run(inventory, spark, url, workspace / "inventory")

    def lists(nodes: tuple[str, ...], *options: str) -> dict[str, set[str]]:
        run(warm, spark, url, workspace / "inventory", "--nodes", ",".join(nodes), "--output", workspace, *options)
        return {node: set((workspace / f"{node}.paths").read_text().splitlines()) for node in nodes}

    of_three = lists(NODES, "--mounted", "/mnt/h/checkpoints")
    everything = set().union(*of_three.values())
    assert sum(map(len, of_three.values())) == len(everything), "each file on one node"
    for name, root in roots.items():
        prefix = f"/mnt/h/checkpoints/{name}/"
        kept = {path.removeprefix(prefix).encode() for path in everything if path.startswith(prefix)}
        assert 0 < len(kept) < len(root.files)
        warmed = Root()
        warmed.files = {key: value for key, value in root.files.items() if key in kept or key.startswith(b"commits/")}
        newest = newest_versions(Checkpoint(root).restorable())
        assert newest
        assert newest <= Checkpoint(warmed).restorable()

    def place_of(path: str) -> str:
        return re.split(r"/(?:SSTs/)?[^/]+$", path)[0]

    nodes_of = {place_of(path): {node for node, paths in of_three.items() if path in paths} for path in everything}
    assert all(len(nodes) == 1 for nodes in nodes_of.values()), "a partition lies on one node"
    of_two = lists(NODES[:2], "--mounted", "/mnt/h/checkpoints")
    assert all(of_three[node] <= of_two[node] for node in NODES[:2]), "only what the lost node had has moved"
    twice = lists(NODES, "--mounted", "/mnt/h/checkpoints", "--copies", "2")
    assert sum(map(len, twice.values())) == 2 * len(everything)
    assert all(of_three[node] <= twice[node] for node in NODES)


def newest_versions(found: set[Restorable]) -> set[Restorable]:
    newest: dict[bytes, int] = {}
    for each in found:
        location = each.store[: each.store.rindex(b"state/")]
        newest[location] = max(newest.get(location, 0), each.version)
    return {each for each in found if each.version == newest[each.store[: each.store.rindex(b"state/")]]}


def test_usage_adds_up_and_tells_growth(
    spark: SparkSession, store_directory: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    garbage.write(Root.of_sample(samples.sample("spark-hdfs")), store_directory / "queries/a<b>")
    url = f"file://{store_directory}"
    run(inventory, spark, url, workspace / "first")
    grown = store_directory / ("f" * 32) / "shared" / ("1" * 32)
    grown.parent.mkdir(parents=True)
    grown.write_bytes(b"x" * 5 * 2**20)
    run(inventory, spark, url, workspace / "second")
    capsys.readouterr()
    page = workspace / "usage.html"
    run(usage, spark, workspace / "second", workspace / "first", "--report", page, "--top", "2")
    shown = capsys.readouterr().out
    assert re.search(rf"{'f' * 32} +1 +5\.0 MiB +\+5\.0 MiB", shown)
    assert "queries/a<b>" in shown
    paths = [str(workspace / "second"), str(workspace / "first")]
    with holding() as hold:
        inventories, owned = usage.amounts(spark, paths, hold)
        totals = {row["began_ns"]: row["sum(bytes)"] for row in owned.groupBy("began_ns").sum("bytes").collect()}
    assert totals == {each.about.began_ns: each.about.size_bytes for each in inventories}
    text = page.read_text()
    assert "5.0 MiB more than on" in text
    assert "a&lt;b&gt;" in text
    assert "<script" not in text


def test_bad_input_is_one_clear_line(
    spark: SparkSession, store_directory: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{store_directory}"
    run(inventory, spark, url, workspace / "inventory")
    other = workspace / "other"
    other.mkdir()
    somewhere = str(workspace / "inventory")
    for job, arguments, words in (
        (inventory, [url, somewhere], "holds something already"),
        (inventory, [f"file://{workspace}/typo", str(workspace / "x")], "there is no such directory"),
        (inventory, ["s3://", str(workspace / "x")], "the bucket is missing"),
        (inventory, [url, str(workspace / "x"), "--store-option", "endpoint"], "write NAME=VALUE"),
        (scrub, [url, str(workspace / "nothing"), str(workspace / "r")], "there is no complete inventory"),
        (scrub, [f"file://{other}", somewhere, str(workspace / "r")], "is an inventory of"),
        (warm, [url, somewhere, "--nodes", "a,a"], "each once"),
        (warm, [url, somewhere, "--nodes", "a", "--copies", "2"], "take more than 1 node"),
        (warm, [url, somewhere, "--nodes", f"@{workspace}/none"], "can't be read"),
        (warm, [url, somewhere, "--nodes", "a", "--output", str(workspace / "no/such")], "can't be written"),
        (orphans, [url, somewhere, "--plans", str(workspace / "no/such")], "can't be written"),
        (orphans, [url, somewhere, "--plans", f"{somewhere}/about/_SUCCESS"], "can't be written"),
        (usage, [somewhere, somewhere], "was given twice"),
        (usage, [somewhere, "--report", str(workspace / "no/such/file")], "can't be written"),
    ):
        assert job.main(arguments) == 1
        told = [line for line in capsys.readouterr().err.splitlines() if "s" in line and not re.search(r": [\d.]+ s$", line)]
        assert len(told) == 1, (arguments, told)
        assert told[0].startswith(f"holdfast {job.__name__.rpartition('.')[2]}: ")
        assert words in told[0]
    assert not (workspace / "typo").exists()
    assert Inventory(spark, somewhere).about.objects == 1, "the clock"


def test_what_fails_in_a_task_is_one_clear_line(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    for problem, told in (
        (RemoteRefusedError("GET x: access denied"), "GET x: access denied"),
        (ValueError("of somebody else's"), "ValueError: of somebody else's"),
    ):

        def fail(batches: Iterator[Any], problem: Exception = problem) -> Iterator[Any]:
            raise problem

        def job(session: SparkSession, *_: object) -> None:
            session.range(1).mapInArrow(fail, "id bigint").collect()

        assert job_command.run("x", job, job_command.parser_of("x", None), []) == 1
        assert capsys.readouterr().err.splitlines()[-1] == f"holdfast x: {told}"
