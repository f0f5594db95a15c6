"""What a daemon keeps in order: sweeps and drops of its stores and working directories, on demand and by itself."""

from holdfast.maintenance.upkeep import Upkeep

__all__ = ["Upkeep"]
