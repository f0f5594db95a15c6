"""Maintenance of stores and working directories: sweeps and drops, on demand and periodic."""

from holdfast.maintenance.changed_zones import drop_copies_of_moved_stores
from holdfast.maintenance.upkeep import Upkeep
