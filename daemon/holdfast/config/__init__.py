"""Configuration: the settings (``schema``), and the sources of their values (``sources``)."""

from holdfast.config.checking import is_secret
from holdfast.config.reloading import Reloaded, reloaded
from holdfast.config.schema import (
    HOST_NAME,
    MOST_STANDBYS,
    NODE_NAME,
    CacheSection,
    Config,
    ControlSection,
    Durability,
    HoldingsSection,
    IntegritySection,
    LogSection,
    MetricsSection,
    MountSection,
    NamesSection,
    OnStop,
    RemoteSection,
    RoleSection,
    StoreSection,
    SweepSection,
    UiSection,
    WorkdirsSection,
    ZoneSection,
)
from holdfast.config.sources import LoadedConfig, hand_over, handed_over, load, settings_of
from holdfast.config.stores_and_roles import ROLE_NAME, ROLE_NAME_ALLOWED
from holdfast.config.units import TcpAddress
