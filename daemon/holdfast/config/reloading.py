"""The settings that a running daemon can take, and the configuration in force once it has."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.config.schema import Config, RoleSection, Section

_S = TypeVar("_S", bound=Section)


class Reloaded(NamedTuple):
    """The configuration that is in force after a reload, and the dotted keys that have changed.

    ``taken`` are in force now, ``left`` would need a restart.
    """

    config: Config
    taken: list[str]
    left: list[str]


def reloaded(now: Config, wanted: Config) -> Reloaded:
    """Return ``now`` with those settings of ``wanted`` that can be taken without a restart."""
    sections: dict[str, Any] = {
        name: _with(section, getattr(wanted, name))
        for name in Config.__struct_fields__
        if isinstance(section := getattr(now, name), Section)
    }
    stores = {name: _with(section, wanted.stores.get(name, section)) for name, section in now.stores.items()}
    config = msgspec.structs.replace(now, **sections, stores=stores, roles=_roles(now, wanted))
    before, after = _flat(now), _flat(wanted)
    changed = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    in_force = _flat(config)
    taken = [key for key in changed if in_force.get(key) == after.get(key)]
    return Reloaded(config, taken, [key for key in changed if key not in taken])


def _roles(now: Config, wanted: Config) -> dict[str, RoleSection]:
    names = [*now.roles, *(name for name in wanted.roles if name not in now.roles)]
    nothing = RoleSection()
    return {name: _with(now.roles.get(name, nothing), wanted.roles.get(name, nothing)) for name in names}


def _with(section: _S, wanted: _S) -> _S:
    return msgspec.structs.replace(section, **{key: getattr(wanted, key) for key in section.RELOADABLE})


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """Return the values by dotted key; those that are not set are left out."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if not isinstance(value, dict):
        return {} if value is None else {key: value}
    found: dict[str, Any] = {}
    for name, each in value.items():
        found |= _flat(each, f"{key}.{name}" if key else str(name))
    return found
