"""Where values come from: defaults, then the file, then the environment, then options; the last one wins.

Every value keeps the name of its source, so that an error can say which file or variable to mend and
``holdfast config show`` can print it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.checking import Key, check, decode, is_list, is_secret, kind_of
from holdfast.config.schema import Config
from holdfast.config.units import ByteSize
from holdfast.errors import ConfigurationError

DEFAULT_FILE = Path("/etc/holdfast/holdfast.toml")
_PREFIX = "HOLDFAST_"
_PASSWORD = re.compile(r"(?<=://)([^/:@]*):[^/]*@")

Flat = dict[Key, Any]


class LoadedConfig(msgspec.Struct, frozen=True):
    """A configuration in force, and for each dotted key the name of its source."""

    config: Config
    sources: dict[str, str]

    def rows(self) -> list[tuple[str, str, str]]:
        """Return ``(key, value, source)`` of every key, sorted, secrets masked."""
        flat = _flatten(msgspec.to_builtins(self.config, enc_hook=_shown))
        rows = ((".".join(key), _masked(key, value)) for key, value in sorted(flat.items()) if value != {})
        return [(name, value, self.sources.get(name, "default")) for name, value in rows]


def load(
    file: Path | None = None, environment: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None
) -> LoadedConfig:
    """Read all sources and check them.

    ``file`` (else ``$HOLDFAST_CONFIG``) must exist when given; without it ``/etc/holdfast/holdfast.toml`` is read if it is
    there. ``options`` maps dotted keys to values; a value of None counts as not given. In the environment and in options
    a list is a text with commas. Raises ``ConfigurationError`` with key, source and what is allowed.
    """
    environment = environment or {}
    given = file or environment.get("HOLDFAST_CONFIG")
    flat: Flat = {}
    sources: dict[str, str] = {}
    for values, source in (
        (_read_file(given), str(given or DEFAULT_FILE)),
        (_read_environment(environment), None),
        (_read_options(options or {}), "option"),
    ):
        for key, value in values.items():
            flat[key] = value
            sources[".".join(key)] = source or f"${_variable(key)}"
    for key, value in flat.items():
        name = ".".join(key)
        try:
            check(key, value)
        except ValueError as problem:
            raise ConfigurationError(f"{name} ({sources[name]}): {problem}") from None
    return LoadedConfig(msgspec.convert(_nest(flat), Config, strict=False, dec_hook=decode), sources)


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
    except tomllib.TOMLDecodeError as problem:
        raise ConfigurationError(f"{path} is not valid TOML: {problem}") from None


def _read_environment(environment: Mapping[str, str]) -> Flat:
    """Read ``HOLDFAST_SECTION__KEY``. Variables without two underscores are no settings: they belong to others."""
    keys = {
        tuple(part.lower() for part in name[len(_PREFIX) :].split("__")): text
        for name, text in environment.items()
        if name.startswith(_PREFIX) and "__" in name
    }
    return dict(_with_lists(keys))


def _read_options(options: Mapping[str, Any]) -> Flat:
    return dict(_with_lists({tuple(key.split(".")): value for key, value in options.items() if value is not None}))


def _with_lists(flat: Flat) -> Iterator[tuple[Key, Any]]:
    """Split what is a text and should be a list."""
    for key, value in flat.items():
        if isinstance(value, str) and _wants_list(key):
            yield key, [word.strip() for word in value.split(",") if word.strip()]
        else:
            yield key, value


def _wants_list(key: Key) -> bool:
    try:
        return is_list(kind_of(key))
    except ValueError:
        return False  # ``check`` tells what is wrong with it


def _variable(key: Key) -> str:
    return _PREFIX + "__".join(key).upper()


def _flatten(tree: Mapping[str, Any], prefix: Key = ()) -> Flat:
    """Return the leaves of ``tree`` by their keys; an empty section is a leaf too, for its name may be wrong."""
    flat: Flat = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(_flatten(value, (*prefix, name)))
        else:
            flat[(*prefix, name)] = value
    return flat


def _nest(flat: Flat) -> dict[str, Any]:
    """Return checked leaves as a tree. Zones get their default URLs, which their struct can't have."""
    defaults = Config()
    tree: dict[str, Any] = {"checkpoints": {"url": defaults.checkpoints.url}, "blobs": {"url": defaults.blobs.url}}
    for key, value in flat.items():
        branch = tree
        for part in key[:-1]:
            branch = branch.setdefault(part, {})
        if value != {}:
            branch[key[-1]] = value
        else:
            branch.setdefault(key[-1], {})
    return tree


def _shown(value: Any) -> str:
    return value.exact() if isinstance(value, ByteSize) else str(value)


def _masked(key: Key, value: Any) -> str:
    return "***" if is_secret(key) else _PASSWORD.sub(r"\1:***@", str(value))
