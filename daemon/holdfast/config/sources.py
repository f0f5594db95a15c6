"""Sources of values: defaults, then the file, then the environment, then options; the last one wins.

Every value keeps the name of its source and its key as written there, so that errors can say what to change where, and
``holdfast config show`` can print it.
"""

from __future__ import annotations

import fcntl
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.config.checking import Key, check, decode, is_list, is_secret, kind_of, unusable
from holdfast.config.schema import Config
from holdfast.config.stores_and_roles import check_name, contradictions, is_of_table, missing_url, named_by_variable
from holdfast.config.units import ByteSize
from holdfast.errors import ConfigurationError
from holdfast.system.text import printable

DEFAULT_FILE = Path("/etc/holdfast/holdfast.toml")
_PREFIX = "HOLDFAST_"
_PASSWORD = re.compile(r"(?<=://)([^/:@]*):[^/]*@")
_EARLIER_SPELLINGS: dict[Key, Key] = {
    ("checkpoints",): ("stores", "checkpoints"),
    ("blobs",): ("stores", "blobs"),
    ("workdirs", "roles"): ("roles",),
}
"""Former names of sections, which still work, and their present names."""

Flat = dict[Key, Any]
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


class _Given(NamedTuple):
    """A value, the name of its source, and its key as written there."""

    value: Any
    source: str
    written: Key

    def __str__(self) -> str:
        return f"{printable('.'.join(self.written))} ({printable(self.source)})"


class LoadedConfig(msgspec.Struct, frozen=True):
    """A configuration in force; by dotted key, each given value's source, and its key as written with that source.

    ``file`` is the configuration file that was read, if any was.
    """

    config: Config
    sources: dict[str, str]
    written: dict[str, str] = {}
    file: Path | None = None

    def named(self, key: str) -> str:
        """Return the dotted ``key`` as it was written, with its source, for an error message."""
        return self.written.get(key, f"{key} (default)")

    def rows(self) -> list[tuple[str, str, str]]:
        """Return ``(key, value, source)`` of every key, sorted, with secrets masked. Unset keys have no row."""
        flat = _flatten(msgspec.to_builtins(self.config, enc_hook=_shown))
        rows = ((".".join(key), _masked(key, value)) for key, value in sorted(flat.items()) if value not in ({}, None))
        return [(name, value, self.sources.get(name, "default")) for name, value in rows]


def load(
    file: Path | None = None, environment: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None
) -> LoadedConfig:
    """Read all sources and validate them.

    ``file`` (or ``$HOLDFAST_CONFIG``) must exist if given; otherwise ``/etc/holdfast/holdfast.toml`` is read if it exists.
    ``options`` maps dotted keys to values; None counts as not given. In the environment and in options a list is a text with
    commas. Raises ``ConfigurationError`` with the key, its source and what is allowed.
    """
    environment = environment or {}
    path = file or environment.get("HOLDFAST_CONFIG")
    given = _renamed((key, _Given(value, str(path or DEFAULT_FILE), key)) for key, value in _read_file(path).items())
    given |= _renamed(_read_environment(environment, _tables(given)))
    given |= _renamed((key, _Given(value, "option", key)) for key, value in _read_options(options or {}).items())
    for key, each in given.items():
        try:
            check_name(key)
            check(key, each.value)
        except ValueError as problem:
            raise ConfigurationError(f"{each}: {problem}") from None
    loaded = LoadedConfig(
        msgspec.convert(_nest(given), Config, strict=False, dec_hook=decode),
        {".".join(key): each.source for key, each in given.items()},
        {".".join(key): str(each) for key, each in given.items()},
        Path(path or DEFAULT_FILE) if path or DEFAULT_FILE.exists() else None,
    )
    for key, contradiction in (*contradictions(loaded.config), *unusable(loaded.config)):
        raise ConfigurationError(f"{loaded.named('.'.join(key))}: {contradiction}")
    return loaded


def settings_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return the options given by ``--set KEY=VALUE``. Raises ``ConfigurationError``."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or "." not in key:
            raise ConfigurationError(f"--set {printable(pair)}: write SECTION.KEY=VALUE, as in cache.max_bytes=20GiB")
        settings[key] = value
    return settings


def _read_file(given: Path | str | None) -> Flat:
    path = Path(given) if given else DEFAULT_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if given:
            raise ConfigurationError(f"the configuration file {path} does not exist") from None
        return {}
    except OSError as problem:
        raise ConfigurationError(f"can't read the configuration file {path}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise ConfigurationError(f"the configuration file {path} is not UTF-8: {problem}") from None
    try:
        return _flatten(tomllib.loads(text))
    except (ValueError, RecursionError) as problem:  # also for numbers and tables that are too long or deep for the parser
        raise ConfigurationError(f"{path} is not valid TOML: {problem}") from None


def _read_environment(environment: Mapping[str, str], tables: set[Key]) -> Iterator[tuple[Key, _Given]]:
    """Read ``HOLDFAST_SECTION__KEY``. Variables without two underscores in a row are ignored: they are no settings."""
    for variable, text in environment.items():
        if variable.startswith(_PREFIX) and "__" in variable:
            key = tuple(part.lower() for part in variable[len(_PREFIX) :].split("__"))
            given = _Given(_listed(key, text), f"${variable}", key)
            try:
                yield named_by_variable(_renamed_key(key), tables), given
            except ValueError as problem:
                raise ConfigurationError(f"{given}: {problem}") from None


def _read_options(options: Mapping[str, Any]) -> Flat:
    keys = {tuple(key.split(".")): value for key, value in options.items() if value is not None}
    return {key: _listed(key, value) for key, value in keys.items()}


def _renamed(source: Iterator[tuple[Key, _Given]]) -> dict[Key, _Given]:
    """Return the values of one source by their present keys. Raises ``ConfigurationError`` for a key given twice."""
    given: dict[Key, _Given] = {}
    for written, value in source:
        key = _renamed_key(written)
        if key in given:
            raise ConfigurationError(f"{given[key]} and {value} are one key; keep only {'.'.join(key)}")
        given[key] = value
    return given


def _renamed_key(key: Key) -> Key:
    for earlier, now in _EARLIER_SPELLINGS.items():
        if key[: len(earlier)] == earlier:
            return now + key[len(earlier) :]
    return key


def _tables(given: Mapping[Key, _Given]) -> set[Key]:
    """Return the tables that a variable may refer to: those of the defaults and of the file."""
    return {("stores", name) for name in Config().stores} | {key[:2] for key in given if is_of_table(key)}


def _listed(key: Key, value: Any) -> Any:
    """Split a text if the key takes a list."""
    if isinstance(value, str) and _wants_list(key):
        return [word.strip() for word in value.split(",") if word.strip()]
    return value


def _wants_list(key: Key) -> bool:
    try:
        return is_list(kind_of(key))
    except ValueError:
        return False  # ``check`` reports it


def _flatten(tree: Mapping[str, Any], prefix: Key = ()) -> Flat:
    """Return the leaves of ``tree`` by key. An empty section counts as a leaf, so that its name is checked."""
    flat: Flat = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(_flatten(value, (*prefix, name)))
        else:
            flat[(*prefix, name)] = value
    return flat


def _nest(given: Mapping[Key, _Given]) -> dict[str, Any]:
    """Return checked leaves as a tree, with the default stores.

    Raises ``ConfigurationError`` for a store without a URL.
    """
    stores: dict[str, Any] = {name: {"url": section.url} for name, section in Config().stores.items()}
    tree: dict[str, Any] = {"stores": stores}
    for key, each in given.items():
        branch = tree
        for part in key[:-1]:
            branch = branch.setdefault(part, {})
        if each.value != {}:
            branch[key[-1]] = each.value
        else:
            branch.setdefault(key[-1], {})
    for name, store in stores.items():
        if "url" not in store:
            example = next(each for key, each in given.items() if key[:2] == ("stores", name))
            others = [other for other in stores if "url" in stores[other]]
            raise ConfigurationError(f"{example}: {missing_url(name, others)}")
    return tree


def _shown(value: Any) -> str:
    return value.exact() if isinstance(value, ByteSize) else str(value)


def _masked(key: Key, value: Any) -> str:
    return "***" if is_secret(key) and value else _PASSWORD.sub(r"\1:***@", str(value))


def hand_over(options: Mapping[str, str]) -> int:
    """Return a descriptor with ``options``, dotted keys and their values, for supervisor and daemon. The caller closes it.

    A URL among them may have a password, and the arguments of a process can be read by everybody (proc(5)). The descriptor
    is a file in memory that nobody can change any more; each daemon that a supervisor starts reads it from the beginning.
    """
    fd = os.memfd_create("holdfast-options", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, msgspec.json.encode(dict(options)))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def handed_over(fd: int) -> dict[str, str]:
    """Return the options in the descriptor ``fd``, which stays open. Raises ``ConfigurationError``."""
    try:
        return msgspec.json.decode(os.pread(fd, os.fstat(fd).st_size, 0), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        raise ConfigurationError(
            f"--options-fd {fd}: no options can be read from it; only holdfast mount passes this"
        ) from None
