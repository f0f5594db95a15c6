"""Plans for sweeps and drops: what retained checkpoints reach, and what can be deleted. Nothing here does any I/O.

``sweep(listing, policy, now_ns)`` returns an ``Examination``: while it has ``wanted`` manifests, fetch them, read each with
its ``kind`` and ``supply`` the answers; its ``result`` is a ``Plan``. Nothing here knows any format: ``formats`` does.
``restores`` is asked in the same way.
"""

from holdfast.checkpoints.examination import Examination, Wanted, examined, missing
from holdfast.checkpoints.formats.interface import Found
from holdfast.checkpoints.plans import Kept, Listed, Phase, Plan, PlanBuilder, PlanEntry, Policy, Reason
from holdfast.checkpoints.reachability.division import census
from holdfast.checkpoints.reachability.drop import checkpoints_to_drop, drop, root_of_drop, up_to
from holdfast.checkpoints.reachability.restores import Place, places_of, restores
from holdfast.checkpoints.reachability.rewind import NOTE, PutBack, SetAside, location_at_root, put_back, rewind, set_aside
from holdfast.checkpoints.reachability.self_contained import self_contained
from holdfast.checkpoints.reachability.sweep import sweep
