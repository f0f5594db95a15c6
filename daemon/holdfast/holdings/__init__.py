"""Holdings: the state of queries on this node and the others, counted here, told through the stores, gathered from them.

Nothing but speed depends on them. A stale or missing one costs a fetch where a copy would have done; nothing else.
"""

from holdfast.holdings.gathering import Gathering, Neighbourhood, Told
from holdfast.holdings.health import Health
from holdfast.holdings.held_stores import HeldStores
from holdfast.holdings.identity import node_name
from holdfast.holdings.publishing import Publishing
from holdfast.holdings.report import NodeHealth, QueryState
