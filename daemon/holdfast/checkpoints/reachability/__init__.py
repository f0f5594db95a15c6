"""What a retained checkpoint reaches, and what may go: plans for sweeps and drops. Nothing here does any I/O.

``sweep(listing, policy, now_ns)`` returns an ``Examination``: while it has ``wanted`` manifests, fetch them, read each with
``read_manifest`` and ``supply`` the answers; its ``result`` is a ``Plan``.
"""

from holdfast.checkpoints.reachability.asking import Examination, Wanted, examined, missing
from holdfast.checkpoints.reachability.plan import Kept, Listed, Phase, Plan, PlanEntry, Policy, Reason
from holdfast.checkpoints.reachability.sweep import drop, sweep, up_to

__all__ = [
    "Examination",
    "Kept",
    "Listed",
    "Phase",
    "Plan",
    "PlanEntry",
    "Policy",
    "Reason",
    "Wanted",
    "drop",
    "examined",
    "missing",
    "sweep",
    "up_to",
]
