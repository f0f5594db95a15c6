"""Modules that need nothing but what ``pip install holdfast`` brings, and PySpark where they say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast import extras

CHECKOUT = Path(__file__).parents[3]
BLOCKED = sorted({*extras.PACKAGES[extras.DAEMON], "_holdfast_kernel"} - {"h11"})
"""The packages that a client does not have. h11 is not among them: httpx brings it."""

_TREES = {"holdfast": CHECKOUT / "daemon", "holdfast_spark": CHECKOUT / "spark_integration"}
_LIGHT = (
    "holdfast.cli",
    "holdfast.checkpoints.configured",
    "holdfast.checkpoints.examination",
    "holdfast.checkpoints.formats",
    "holdfast.checkpoints.manifests",
    "holdfast.checkpoints.plans",
    "holdfast.checkpoints.reachability",
    "holdfast.checkpoints.references",
    "holdfast.checkpoints.sweeps.plan_format",
    "holdfast.config",
    "holdfast.control.client",
    "holdfast.control.messages",
    "holdfast.daemon",
    "holdfast.digest",
    "holdfast.errors",
    "holdfast.extras",
    "holdfast.mount",
    "holdfast.problems",
    "holdfast.supervision.keeper",
    "holdfast.supervision.supervisor",
    "holdfast.system",
    "holdfast_spark",
)
_NEED_MORE = ("holdfast.cli.doctor_start", "holdfast_spark.datasource", "holdfast_spark.jobs", "holdfast_spark.stores")
"""The checks of a start, and what opens stores by itself (``holdfast[stores]``)."""
_NEED_SPARK = (
    "holdfast_spark.arrow_forms",
    "holdfast_spark.batch_reports",
    "holdfast_spark.driver_end",
    "holdfast_spark.pipeline.flights",
    "holdfast_spark.placement.listener",
    "holdfast_spark.second_driver",
)
_PROGRAM = "holdfast_spark.pipeline.check"


def light_modules(*, with_spark: bool) -> list[str]:
    """Return the names of all light modules, so that a new module of a light package is one of them."""
    spared = _NEED_MORE if with_spark else (*_NEED_MORE, *_NEED_SPARK)
    return sorted(name for name in _all_modules() if _is_below(name, _LIGHT) and not _is_below(name, spared))


def _all_modules() -> Iterator[str]:
    for package, tree in _TREES.items():
        for file in (tree / package).rglob("*.py"):
            name = ".".join(file.relative_to(tree).with_suffix("").parts).removesuffix(".__init__")
            if file.stem != "__main__" and name != _PROGRAM:  # they run when they are imported
                yield name


def _is_below(name: str, packages: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)
