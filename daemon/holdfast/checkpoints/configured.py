"""The checkpoint settings of the configuration: kinds of names, and the roots and ages of sweeps.

Invalid values are found here, by the daemon that uses them and by whoever checks a configuration beforehand.
"""

from __future__ import annotations

from msgspec.structs import asdict

from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.reachability import Policy
from holdfast.config import Config, SweepSection
from holdfast.errors import ConfigurationError
from holdfast.zones import NameKind, NameTable

_SECOND_NS = 10**9


def name_table(config: Config) -> NameTable:
    """Return the table of kinds of names. Raises ``ConfigurationError`` for an invalid pattern."""
    return NameTable({NameKind.of_key(key): each for key, each in asdict(config.names).items()}, FORMATS.name_kinds)


def sweep_roots(config: Config) -> list[tuple[str, str]]:
    """Return zone and directory of each root of periodic sweeps: by default stores of checkpoints, and working directories.

    Stores of checkpoints are those that ``localState`` of any role falls back to. Raises ``ConfigurationError`` if
    ``[sweep]`` names a zone that can't be swept, or has ages that contradict each other.
    """
    sweep_policy(config.sweep)
    roles = config.every_role()
    bases = {section.base for section in roles}
    wanted = config.sweep.roots or [*sorted({each.local_state for each in roles if each.local_state}), *sorted(bases)]
    roots = [(zone, root) for zone, _, root in (each.strip("/").partition("/") for each in wanted)]
    zones = {*config.mounted_stores, *bases}
    for zone, _ in roots:
        if zone not in zones:
            raise ConfigurationError(f"sweep.roots: there is no zone {zone!r}; allowed are {', '.join(sorted(zones))}")
    return roots


def sweep_policy(
    settings: SweepSection,
    grace_seconds: float | None = None,
    abandoned_seconds: float | None = None,
    min_batches_to_retain: int | None = None,
) -> Policy:
    """Return the policy of a sweep, with configured values for None. Raises ``ConfigurationError`` for invalid values."""
    grace = settings.grace_seconds if grace_seconds is None else grace_seconds
    abandoned = settings.abandoned_seconds if abandoned_seconds is None else abandoned_seconds
    batches = settings.min_batches_to_retain if min_batches_to_retain is None else min_batches_to_retain
    return Policy(int(grace * _SECOND_NS), int(abandoned * _SECOND_NS), batches)
