"""The tables ``[stores.NAME]`` and ``[roles.NAME]``: their valid names, and checks across them.

Pure. Whether two URLs lead to the same place is checked elsewhere (``path_conflicts``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from holdfast.config.checking import Key, suggestion
from holdfast.config.schema import Config, RoleSection, WorkdirsSection

ROLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
"""A role's name. It ends at the first ``_`` of a working directory's name."""
ROLE_NAME_ALLOWED = "letters, digits and hyphens, beginning with a letter"
_STORE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_NOT_BASES = {".", "..", ".holdfast"}
_LONGEST_NAME_BYTES = 255
_LARGEST_OWNER = 2**32 - 2


class _Kind(NamedTuple):
    """The tables of one section: the word for one, and the rule for its name."""

    word: str
    name: re.Pattern[str]
    allowed: str


_TABLES = {
    "stores": _Kind(
        "store", _STORE_NAME, "up to 63 small letters, digits, hyphens and underscores, beginning with a letter or digit"
    ),
    "roles": _Kind("role", ROLE_NAME, ROLE_NAME_ALLOWED),
}


def is_of_table(key: Key) -> bool:
    """Say whether ``key`` is one of these tables, or lies in one."""
    return len(key) > 1 and key[0] in _TABLES


def check_name(key: Key) -> None:
    """Raise ``ValueError`` if ``key`` lies in a table with an invalid name."""
    if is_of_table(key) and not _TABLES[key[0]].name.fullmatch(key[1]):
        raise ValueError(f"{key[1]!r} can't be the name of a {_TABLES[key[0]].word}; use {_TABLES[key[0]].allowed}")


def named_by_variable(key: Key, tables: Collection[Key]) -> Key:
    """Return the key that a variable refers to. Variables have no capitals and no hyphens, but table names may.

    ``tables`` has section and name of each existing table. An exact name takes precedence. Raises ``ValueError`` if several
    match.
    """
    if not is_of_table(key) or key[:2] in tables:
        return key
    meant = sorted(table[1] for table in tables if table[0] == key[0] and table[1].lower().replace("-", "_") == key[1])
    if len(meant) > 1:
        raise ValueError(f"it may mean {' or '.join(meant)}; set that one in the file or by an option")
    return (key[0], meant[0], *key[2:]) if meant else key


def missing_url(name: str, others: Sequence[str]) -> str:
    """Say what to do about a store's table without ``url``."""
    return f"the store {name} has no url; set stores.{name}.url if it is a new one; {suggestion(name, others)}"


def contradictions(config: Config) -> Iterator[tuple[Key, str]]:
    """Yield keys whose values do not fit the existing tables, and what to do about each."""
    for name, store in config.stores.items():
        for owner, number in (("uid", store.uid), ("gid", store.gid)):
            if not -1 <= number <= _LARGEST_OWNER:
                yield ("stores", name, owner), f"{number} is not allowed; write -1, or a number up to {_LARGEST_OWNER}"
    sections: dict[Key, WorkdirsSection | RoleSection] = {("workdirs",): config.workdirs}
    sections.update({("roles", name): section for name, section in config.roles.items()})
    for where, section in sections.items():
        if section.base is not None and (problem := _problem_of_base(section.base, config)):
            yield (*where, "base"), problem
        for key, fallback in (("local_state", section.local_state), ("blob_storage", section.blob_storage)):
            if fallback and fallback not in config.mounted_stores:
                yield (*where, key), _problem_of_fallback(fallback, config)


def _problem_of_base(base: str, config: Config) -> str:
    if base in _NOT_BASES or "/" in base or not base.isprintable() or len(base.encode()) > _LONGEST_NAME_BYTES:
        return f"{base!r} can't be a directory in the root of the mount; write one name, as in 'work'"
    if base in config.stores:
        return f"{base!r} is the name of a store (stores.{base}); write another"
    return ""


def _problem_of_fallback(store: str, config: Config) -> str:
    if store in config.stores:
        return f"the store {store} is left out of the mount; name another, or write '' for none, or set stores.{store}.url"
    return f"there is no store {store!r} (write '' for none); {suggestion(store, list(config.mounted_stores))}"
