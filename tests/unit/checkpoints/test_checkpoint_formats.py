"""A format is one package and one line: a third one is known to all that has to do with checkpoints."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import holdfast.checkpoints
import holdfast_spark.jobs
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import FetchReferences, Format, ListDirectories
from holdfast.checkpoints.manifests import ManifestKind
from holdfast.checkpoints.reachability import Phase, Policy, census, drop, sweep, up_to
from holdfast.errors import ConfigurationError, PlanError
from holdfast.fs.file_io import prefetch
from holdfast.fs.file_io.file_ends import names_behind
from holdfast.fs.remote_view import create_hints
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.zones import NameKind, NameTable, names
from holdfast_spark.jobs.owners import Owners
from tests.support.checkpoints import samples
from tests.support.checkpoints.divided_sweep import divided_sweep, rows_of, warmed
from tests.support.checkpoints.root_store import RootStore
from tests.support.checkpoints.roots import DAY, HOUR, Root, reasons
from tests.support.checkpoints.sweeps import SweepsOver
from tests.support.checkpoints.toy_format import TOY, TOYS_GO, WITH_TOY, ToyManifest, manifest, toys

POLICY = Policy(grace_ns=HOUR, abandoned_ns=DAY, min_batches_to_retain=2)


@pytest.fixture
def root() -> Root:
    return toys()


# --- reachability -----------------------------------------------------------------------------------------------------


def test_a_census_has_its_checkpoints(root: Root) -> None:
    found = [(each.name, each.what) for each in census(root.listing(), WITH_TOY)]
    assert found == [
        (b"tables/t/log/1", "batch"),
        (b"tables/t/log/2", "batch"),
        (b"toy/data", "shared"),
        (b"toy/ckpt-2", "checkpoint"),
        (b"toy/ckpt-3", "checkpoint"),
    ]
    assert census(root.listing()) == []


def test_a_sweep_reads_its_manifests_and_takes_what_they_do_not_refer_to(root: Root) -> None:
    examination = sweep(root.listing(), POLICY, root.now_ns, WITH_TOY)
    assert {(each.name, each.kind.name) for each in examination.wanted} == {
        (b"toy/ckpt-2/MANIFEST", "toy manifest"),
        (b"toy/ckpt-3/MANIFEST", "toy manifest"),
    }
    answers = root.answers(examination.wanted)
    assert all(isinstance(answer, ToyManifest) for answer in answers.values())
    examination.supply(answers)
    plan = examination.result
    assert set(reasons(plan)) == TOYS_GO
    assert {b"toy/data/a", b"toy/data/b", b"toy/data/c"} <= plan.retained
    assert root.carry_out(sweep(root.listing(), POLICY, root.now_ns)).entries == (), "who does not know it keeps it"


def test_a_manifest_that_can_not_be_read_stops_its_own_layout_only(root: Root) -> None:
    root.write("toy/ckpt-4/MANIFEST", b"no toy", age_ns=HOUR)
    plan = root.carry_out(sweep(root.listing(), POLICY, root.now_ns, WITH_TOY))
    assert [kept.scope for kept in plan.kept] == [b"toy/ckpt-4/MANIFEST"]
    assert set(reasons(plan)) == TOYS_GO - {"toy/data/orphan"}
    assert divided_sweep(root, POLICY, WITH_TOY).kept == {"toy/ckpt-4/MANIFEST"}


def test_a_drop_takes_its_manifests_and_what_its_other_checkpoints_do_not_need_is_swept(root: Root) -> None:
    assert up_to(root.listing(), b"toy/ckpt-2", WITH_TOY) == {b"toy/ckpt-1", b"toy/ckpt-2"}
    plan = root.carry_out(drop(root.listing(), [b"toy/ckpt-2"], root.now_ns, WITH_TOY))
    assert [(entry.name, entry.phase) for entry in plan.entries] == [
        (b"toy/ckpt-2/MANIFEST", Phase.MANIFEST),
        (b"toy/ckpt-2", Phase.DIRECTORY),
    ]
    root.execute(plan)
    swept = root.carry_out(sweep(root.listing(), POLICY, root.now_ns, WITH_TOY))
    assert set(reasons(swept)) == TOYS_GO | {"toy/data/a"}


def test_a_batch_of_its_locations_can_be_dropped(root: Root) -> None:
    plan = root.carry_out(drop(root.listing(), [b"tables/t/log/1"], root.now_ns, WITH_TOY))
    assert set(reasons(plan)) == {"tables/t/log/1"}
    with pytest.raises(PlanError, match="there is no toy table at tables"):
        drop(root.listing(), [b"tables/log/1"], root.now_ns, WITH_TOY)


@pytest.mark.parametrize("sample", samples.names())
def test_other_formats_are_judged_as_without_it(sample: str, root: Root) -> None:
    before = Root.of_sample(samples.sample(sample))
    root.now_ns = before.now_ns
    both = Root.of_sample(samples.sample(sample))
    both.files |= root.files
    both.directories |= root.directories
    alone = before.carry_out(sweep(before.listing(), POLICY, before.now_ns))
    beside = both.carry_out(sweep(both.listing(), POLICY, both.now_ns, WITH_TOY))
    ours = [entry for entry in beside.entries if not entry.name.startswith((b"toy/", b"tables/"))]
    assert tuple(ours) == alone.entries


async def test_the_daemon_sweeps_and_drops_it(root: Root, tmp_path: Path) -> None:
    node = SweepsOver(RootStore(root), tmp_path, WITH_TOY)
    found = await node.sweeps.census("checkpoints", "tables/t")
    assert [each.name for each in found] == [b"log/1", b"log/2"]
    plan = await node.sweeps.plan_sweep("checkpoints", "", POLICY)
    assert {item.name for item in plan.items} == TOYS_GO
    await node.carry_out(plan)
    plan = await node.sweeps.plan_drop("checkpoints", "toy/ckpt-3", None, all_before=True)
    assert [item.name for item in plan.items][:2] == ["toy/ckpt-2/MANIFEST", "toy/ckpt-3/MANIFEST"]
    await node.carry_out(plan)
    plan = await node.sweeps.plan_drop("checkpoints", "tables/t/log/1", None, all_before=False)
    await node.carry_out(plan)
    left = {name for name in root.files if not name.startswith(b"toy/data/")}
    assert left == {b"toy/scratch/new", b"tables/t/TABLE", b"tables/t/log/2", b"tables/t/part-0/2"}
    with pytest.raises(PlanError, match="the directory ckpt-<n> of a toy, or commits/<n> of a Spark query, or log/<n>"):
        await node.sweeps.plan_drop("checkpoints", "toy/data", None, all_before=False)


# --- names, opens and creations ---------------------------------------------------------------------------------------


def test_its_names_have_their_kinds() -> None:
    table = NameTable({}, WITH_TOY.name_kinds)
    assert table.kind_of(b"toy/ckpt-1/MANIFEST") is NameKind.WRITE_ONCE
    assert table.kind_of(b"toy/data/x.part") is NameKind.TEMPORARY
    assert table.kind_of(b"q/offsets/5") is NameKind.WRITE_ONCE
    assert NameTable({}, FORMATS.name_kinds).kind_of(b"toy/ckpt-1/MANIFEST") is NameKind.REPLACEABLE


def test_an_open_of_its_manifest_leads_to_what_it_names(tmp_path: Path) -> None:
    ahead = WITH_TOY.read_ahead(b"MANIFEST")
    assert isinstance(ahead, FetchReferences)
    (tmp_path / "MANIFEST").write_bytes(manifest("a", "b"))
    assert names_behind(ahead, os.open(tmp_path / "MANIFEST", os.O_RDONLY)) == [b"../data/a", b"../data/b"]
    assert WITH_TOY.read_ahead(b"TABLE") == ListDirectories((b"log",), evidence=b"log")
    assert FORMATS.read_ahead(b"MANIFEST") is None


def test_whoever_creates_by_its_conventions_is_known() -> None:
    hints = CreateHints(lambda: 0.0, WITH_TOY)
    hints.temporary_made(b"toy/data", b"a.part", 7)
    assert hints.is_creating(b"toy/data", b"a", NameKind.REPLACEABLE, 7, 0.0)
    hints.created(b"tables/t/log", NameKind.WRITE_ONCE, 7)
    assert WITH_TOY.checkpoint_of_log(b"tables/t/log") == b"tables/t"
    without = CreateHints(lambda: 0.0)
    without.temporary_made(b"toy/data", b"a.part", 7)
    assert not without.is_creating(b"toy/data", b"a", NameKind.REPLACEABLE, 7, 0.0)


# --- Spark's jobs -----------------------------------------------------------------------------------------------------


def test_the_jobs_divide_it_and_come_to_the_same_plan(root: Root) -> None:
    plan = divided_sweep(root, POLICY, WITH_TOY)
    assert set(plan.entries) == TOYS_GO
    assert divided_sweep(root, POLICY, FORMATS).entries == {}


@pytest.mark.parametrize("policy", [POLICY, Policy(0, 0, 0)])
@pytest.mark.parametrize("sample", samples.names())
def test_a_sweep_in_parts_gives_the_plan_of_a_sweep(sample: str, policy: Policy) -> None:
    root = Root.of_sample(samples.sample(sample))
    whole = root.sweep(policy)
    parts = divided_sweep(root, policy, FORMATS)
    assert parts.entries == {name: reason.name for name, reason in reasons(whole).items()}
    assert parts.kept == {kept.scope.decode() for kept in whole.kept}


def test_the_jobs_know_its_owners_and_purposes(root: Root) -> None:
    owners = Owners(WITH_TOY)
    told = {
        row["name"]: owners.owner_of(row["location"], row["location_layout"], row["name"]) for row in rows_of(root, WITH_TOY)
    }
    assert told["toy/data/a"] == ("toy", "toy data")
    assert told["tables/t/part-0/1"] == ("tables/t", "toy partitions")
    assert {"toy data", "toy partitions"} <= set(WITH_TOY.purposes)


def test_the_jobs_warm_the_state_of_its_locations(root: Root) -> None:
    assert warmed(root, WITH_TOY) == {("tables/t", 0, 0, "tables/t/part-0/2")}


# --- the registry -----------------------------------------------------------------------------------------------------


def test_formats_have_names_of_their_own_and_somebody_reads_their_manifests() -> None:
    with pytest.raises(ConfigurationError, match="two checkpoint formats have one name"):
        Formats(TOY, TOY)
    with pytest.raises(ConfigurationError, match="no checkpoint format reads toy manifest"):
        Formats(Format("toy", tree=TOY.tree))


def test_flinks_checkpoints_and_our_own_have_one_tree_and_one_kind_of_manifest() -> None:
    assert len(FORMATS.trees) == 1
    assert [kind.name for kind in FORMATS.manifests] == ["checkpoint metadata"]
    assert [kind.name for kind in WITH_TOY.manifests if isinstance(kind, ManifestKind)] == [
        "checkpoint metadata",
        "toy manifest",
    ]


# --- nothing else knows a format --------------------------------------------------------------------------------------

_OF_A_FORMAT = r"[Ff]link|chk-|(?<![a-z])_metadata|savepoint|taskowned|offsets|commits|\bSSTs?\b|changelog|_spark_metadata"
_OF_SPARKS_GRAMMAR = r"|Spark(?:Kind|Name|Snapshot|Changelog|Commit|Offsets)|parse_spark"
_SPARK = r"|[Ss]park"
"""The jobs run on Spark, and may say so."""


def generic_modules() -> Iterator[Path]:
    checkpoints = Path(holdfast.checkpoints.__path__[0])
    for path in checkpoints.rglob("*.py"):
        room, *rest = path.relative_to(checkpoints).parts
        if room != "formats" or rest[0] in ("interface", "registry.py"):
            yield path
    for module in (create_hints, prefetch, names):
        yield _file(module)
    yield from Path(holdfast_spark.jobs.__path__[0]).glob("*.py")


def _file(module: ModuleType) -> Path:
    return Path(inspect.getsourcefile(module) or "")


def words(path: Path) -> Iterator[str]:
    """Yield the names and texts in a module, but for docstrings."""
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in prose:
            yield os.fsdecode(node.value)
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias | ast.keyword | ast.arg):
            yield (node.name if isinstance(node, ast.alias) else node.arg) or ""
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


@pytest.mark.parametrize("path", sorted(generic_modules()), ids=lambda path: "/".join(path.parts[-2:]))
def test_no_format_is_written_into_what_serves_all(path: Path) -> None:
    pattern = re.compile(_OF_A_FORMAT + (_OF_SPARKS_GRAMMAR if path.parent.name == "jobs" else _SPARK))
    found = [word for word in words(path) if pattern.search(word)]
    assert found == []
