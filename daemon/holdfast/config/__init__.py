"""Configuration: what can be set (``schema``), and where each value comes from (``sources``)."""

from holdfast.config.schema import (
    CacheSection,
    Config,
    ControlSection,
    Durability,
    IntegritySection,
    LogSection,
    MountSection,
    NamesSection,
    RemoteSection,
    RoleSection,
    StoreSection,
    SweepSection,
    WorkdirsSection,
    ZoneSection,
)
from holdfast.config.sources import LoadedConfig, load

__all__ = [
    "CacheSection",
    "Config",
    "ControlSection",
    "Durability",
    "IntegritySection",
    "LoadedConfig",
    "LogSection",
    "MountSection",
    "NamesSection",
    "RemoteSection",
    "RoleSection",
    "StoreSection",
    "SweepSection",
    "WorkdirsSection",
    "ZoneSection",
    "load",
]
