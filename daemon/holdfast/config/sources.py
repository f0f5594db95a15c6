"""Where values come from: defaults, then the file, then the environment, then options; the last one wins.

Every value keeps the name of its source, so that an error can say which file or variable to mend and
``holdfast config show`` can print it.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.schema import Config, Durability
from holdfast.config.units import ByteSize, FileMode
from holdfast.errors import ConfigurationError

DEFAULT_FILE = Path("/etc/holdfast/holdfast.toml")
_PREFIX = "HOLDFAST_"
_RESERVED = {"HOLDFAST_SOCKET", "HOLDFAST_CONFIG"}

Flat = dict[tuple[str, ...], Any]


class LoadedConfig(msgspec.Struct, frozen=True):
    """A configuration in force, and for each dotted key the name of its source."""

    config: Config
    sources: dict[str, str]

    def rows(self) -> list[tuple[str, str, str]]:
        """Return ``(key, value, source)`` of every key, sorted, secrets masked."""
        flat = _flatten(msgspec.to_builtins(self.config, enc_hook=_encode))
        return [
            (".".join(key), _masked(key, value), self.sources.get(".".join(key), "default"))
            for key, value in sorted(flat.items())
        ]


def load(
    file: Path | None = None, environment: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None
) -> LoadedConfig:
    """Read all sources and check them.

    ``file`` must exist when given; without it ``/etc/holdfast/holdfast.toml`` is read if it is there. ``options`` maps
    dotted keys to values; a value of None counts as not given. Raises ``ConfigurationError`` with key, source and what
    is allowed.
    """
    environment = environment or {}
    flat: Flat = {}
    sources: dict[str, str] = {}
    for values, name in (
        (
            _read_file(file or environment.get("HOLDFAST_CONFIG")),
            str(file or environment.get("HOLDFAST_CONFIG") or DEFAULT_FILE),
        ),
        (_read_environment(environment), "environment"),
        ({tuple(k.split(".")): v for k, v in (options or {}).items() if v is not None}, "option"),
    ):
        for key, value in values.items():
            flat[key] = value
            sources[".".join(key)] = f"${_variable(key)}" if name == "environment" else name
    try:
        config = msgspec.convert(_nest(flat), Config, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as problem:
        raise ConfigurationError(_explain(str(problem), sources)) from None
    return LoadedConfig(config, sources)


def _read_file(file: Path | str | None) -> Flat:
    path = Path(file) if file else DEFAULT_FILE
    try:
        text = path.read_text()
    except FileNotFoundError:
        if file:
            raise ConfigurationError(f"the configuration file {path} does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"can't read the configuration file {path}: {problem}") from None
    try:
        return _flatten(tomllib.loads(text))
    except tomllib.TOMLDecodeError as problem:
        raise ConfigurationError(f"{path} is not valid TOML: {problem}") from None


def _read_environment(environment: Mapping[str, str]) -> Flat:
    flat: Flat = {}
    sections = set(Config.__struct_fields__)
    for name, text in environment.items():
        if not name.startswith(_PREFIX) or name in _RESERVED or "__" not in name:
            continue
        key = tuple(part.lower() for part in name[len(_PREFIX) :].split("__"))
        if key[0] in sections:
            flat[key] = text.split(",") if key[0] == "names" else text
        else:
            raise ConfigurationError(f"${name}: no section [{key[0]}]; there are {', '.join(sorted(sections))}")
    return flat


def _variable(key: tuple[str, ...]) -> str:
    return _PREFIX + "__".join(key).upper()


def _flatten(tree: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Flat:
    flat: Flat = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(_flatten(value, (*prefix, name)))
        elif not isinstance(value, Mapping):
            flat[(*prefix, name)] = value
    return flat


def _nest(flat: Flat) -> dict[str, Any]:
    defaults = msgspec.to_builtins(Config(), enc_hook=_encode)
    tree: dict[str, Any] = {section: {"url": defaults[section]["url"]} for section in ("checkpoints", "blobs")}
    for key, value in flat.items():
        branch = tree
        for part in key[:-1]:
            branch = branch.setdefault(part, {})
            if not isinstance(branch, dict):
                raise ConfigurationError(f"{'.'.join(key)}: {part} is a value, not a section")
        branch[key[-1]] = value
    return tree


def _decode(kind: type, value: Any) -> Any:
    if kind is ByteSize:
        return ByteSize.parse(value) if isinstance(value, str) else ByteSize(value)
    if kind is FileMode:
        if not isinstance(value, str):
            raise ValueError(f'{value!r} is not a mode: write octal digits in quotes, as in "0644"')
        return FileMode.parse(value)
    raise NotImplementedError(kind)


def _encode(value: Any) -> Any:
    return str(value)


def _masked(key: tuple[str, ...], value: Any) -> str:
    if any(word in key[-1].lower() for word in ("secret", "password", "token", "account_key", "credential")):
        return "***"
    return str(value)


def _explain(problem: str, sources: Mapping[str, str]) -> str:
    what, _, where = problem.partition(" - at `$")
    key = where.rstrip("`").lstrip(".").replace("[...]", "")
    if what.startswith("Object contains unknown field"):
        unknown = what.split("`")[1]
        known = _known_keys(key)
        close = difflib.get_close_matches(unknown, known, n=1)
        full = f"{key}.{unknown}" if key else unknown
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        return f"{full} ({_source_of(full, sources)}): no such key; {hint}"
    if "enum value" in what:
        what += f"; allowed are {', '.join(level.value for level in Durability)}"
    return f"{key} ({_source_of(key, sources)}): {what}"


def _source_of(key: str, sources: Mapping[str, str]) -> str:
    return next((name for known, name in sources.items() if known == key or known.startswith(f"{key}.")), "default")


def _known_keys(section: str) -> list[str]:
    kind: Any = Config
    for part in filter(None, section.split(".")):
        kind = type(getattr(Config(), part, None)) if kind is Config else None
    return list(getattr(kind, "__struct_fields__", ()))
