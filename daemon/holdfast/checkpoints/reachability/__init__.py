"""What a retained checkpoint reaches, and what may go: plans for sweeps and drops. Nothing here does any I/O.

``sweep(listing, policy, now_ns)`` returns an ``Examination``: while it has ``wanted`` manifests, fetch them, read each with
``read_manifest`` and ``supply`` the answers; its ``result`` is a ``Plan``.
"""

from holdfast.checkpoints.reachability.asking import Examination, Wanted, examined, missing
from holdfast.checkpoints.reachability.census import Found, census
from holdfast.checkpoints.reachability.plan import Kept, Listed, Phase, Plan, PlanBuilder, PlanEntry, Policy, Reason
from holdfast.checkpoints.reachability.spark_drop import batch_of
from holdfast.checkpoints.reachability.sweep import drop, drop_batches, sweep, up_to

__all__ = [
    "Examination",
    "Found",
    "Kept",
    "Listed",
    "Phase",
    "Plan",
    "PlanBuilder",
    "PlanEntry",
    "Policy",
    "Reason",
    "Wanted",
    "batch_of",
    "census",
    "drop",
    "drop_batches",
    "examined",
    "missing",
    "sweep",
    "up_to",
]
