"""Standby copies: state of partitions that run on another node, fetched here before it is needed.

Each daemon decides by itself which partitions it stands by for, from the reports of the nodes (``duties``, ``assignment``).
"""

from holdfast.standbys.catching_up import CatchingUp
from holdfast.standbys.copies import StandbyCopies
from holdfast.standbys.restraint import Restraint
from holdfast.standbys.service import Figures, Standbys, StoreStandbys
