"""What a daemon keeps in order: sweeps and drops of its stores and working directories, on demand and by itself."""

from holdfast.maintenance.moved_stores import drop_copies_of_moved_stores
from holdfast.maintenance.upkeep import Upkeep

__all__ = ["Upkeep", "drop_copies_of_moved_stores"]
