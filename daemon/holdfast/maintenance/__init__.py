"""Maintenance of stores and working directories: sweeps and drops, on demand and periodic."""

from holdfast.maintenance.upkeep import Upkeep

__all__ = ["Upkeep"]
