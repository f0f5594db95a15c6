"""Validation of single values, so that an error names the key and says what is allowed."""

from __future__ import annotations

import difflib
import enum
import logging
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from holdfast.config.schema import Config
from holdfast.config.units import ByteSize, FileMode, TcpAddress

Key = tuple[str, ...]
_SECRET_WORDS = ("secret", "passw", "passphrase", "token", "credential", "connection_string", "sas", "signature", "bearer")
_SECRET_PARTS = {"auth", "authorization", "pwd"}
_LARGE = 100_000
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")


def kind_of(key: Key) -> Any:
    """Return the type of the value at ``key``. Raises ``ValueError``, with a suggestion, if there is no such key."""
    kind: Any = Config
    for depth, part in enumerate(key):
        if _is_struct(kind):
            fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
            if part not in fields:
                raise ValueError(_no_such(key, depth, list(fields)))
            kind = fields[part]
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            raise ValueError(f"{'.'.join(key[:depth])} is a value, not a section")
    return kind


def check(key: Key, value: Any) -> None:
    """Raise ``ValueError``, which says what is allowed, unless ``value`` is valid at ``key``."""
    kind = kind_of(key)
    if value == {} and _is_section(kind):
        return
    try:
        msgspec.convert(value, kind, strict=False, dec_hook=decode)
    except (msgspec.ValidationError, ValueError):
        shown = _as_toml(value) if _may_be_shown(key, value) else "this"
        raise ValueError(f"{shown} is not allowed; write {_allowed(kind)}") from None


def unusable(config: Config) -> Iterator[tuple[Key, str]]:
    """Yield keys whose values can't be used although the schema takes them, and what is allowed."""
    if config.ui.listen and not _TOKEN.fullmatch(config.ui.token):  # anybody can connect; the message does not repeat it
        what = "it is too short, too long or has other characters" if config.ui.token else "ui.listen needs one"
        yield ("ui", "token"), f"{what}; write 16 to 128 letters, digits, - and _, as 'openssl rand -hex 32' makes them"
    if config.log.level.upper() not in logging.getLevelNamesMapping():
        yield ("log", "level"), f"{config.log.level!r}; allowed are debug, info, warning, error"


def decode(kind: type, value: Any) -> Any:
    """Decode the types that msgspec does not know (its ``dec_hook``)."""
    if issubclass(kind, ByteSize | FileMode | TcpAddress):
        return kind.parse(value)
    raise NotImplementedError(kind)


def suggestion(name: str, known: Sequence[str]) -> str:
    """Suggest the one of ``known`` that is closest to ``name``, or list all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known) or 'none'}"


def is_list(kind: Any) -> bool:
    """Say whether values of ``kind`` are lists."""
    return get_origin(kind) is list


def is_secret(key: Key) -> bool:
    """Say whether the value at ``key`` must not be shown. Ids of keys and paths of key files may be shown."""
    name = key[-1].lower()
    if any(word in name for word in _SECRET_WORDS) or not _SECRET_PARTS.isdisjoint(name.split("_")):
        return True
    return "key" in name and not name.endswith(("_id", "file", "filename", "path"))


def _may_be_shown(key: Key, value: Any) -> bool:
    """Say whether an error may repeat what was given: not secrets, nor what may have some in it, as a list of tables has."""
    if is_secret(key):
        return False
    if key[0] != "stores":
        return True
    return key[2:] != ("options",) if key[2:] else not isinstance(value, Mapping | list)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _is_section(kind: Any) -> bool:
    return _is_struct(kind) or get_origin(kind) is dict


def _no_such(key: Key, depth: int, known: list[str]) -> str:
    part, section = key[depth], key[:depth]
    if len(key) == 1:
        meant = [f"{section.name}.{part}" for section in msgspec.structs.fields(Config) if part in _keys_of(section.type)]
        if meant:
            return f"{part!r} stands outside of all sections; did you mean {' or '.join(meant)}?"
    tables = f"{section[0]}s" if depth == 1 and len(key) > depth + 1 else ""
    if tables in Config.__struct_fields__:
        return f"{section[0]} has no tables; did you mean {tables}.{part}?"
    return f"there is no {'key' if section else 'section'} {part!r}; {suggestion(part, known)}"


def _keys_of(kind: Any) -> tuple[str, ...]:
    return kind.__struct_fields__ if _is_struct(kind) else ()


def _as_toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _allowed(kind: Any) -> str:
    """Describe in words the valid values of ``kind``."""
    bounds = ""
    if get_origin(kind) is Annotated:
        kind, *metas = get_args(kind)
        bounds = "".join(_bounds(meta) for meta in metas)
    if get_origin(kind) in (Union, types.UnionType):
        words = [_allowed(one) for one in get_args(kind) if one is not types.NoneType]
        return " or ".join(dict.fromkeys(words))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    if isinstance(kind, type) and issubclass(kind, ByteSize | FileMode | TcpAddress):
        return kind.ALLOWED
    if is_list(kind):
        return "a list of strings"
    words_of = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return words_of.get(kind, "a section, with keys of its own") + bounds


def _bounds(meta: msgspec.Meta) -> str:
    if meta.min_length:
        return " that is not empty"
    parts = [
        f"{word} {bound:g}" if bound < _LARGE else f"{word} {bound:,.0f}"
        for word, bound in (("above", meta.gt), ("of at least", meta.ge), ("up to", meta.le), ("below", meta.lt))
        if bound is not None
    ]
    return " " + ", ".join(parts) if parts else ""
