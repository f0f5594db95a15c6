"""``docs/configuration.md`` says what the schema says, key by key, and what each store promises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest

from holdfast.config import Config, RoleSection, ZoneSection, load
from holdfast.config.schema import Section
from holdfast.config.units import ByteSize
from holdfast.remote import Capabilities
from holdfast.remote.file_store import FileStore
from holdfast.remote.fsspec_store import FsspecStore
from holdfast.remote.obstore_store import ObstoreStore

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/configuration.md").read_text()
WITHOUT_EFFECT = "Without effect in this version."
NAME_OF_TABLE = "NAME"
TABLES = {"stores": ZoneSection(url=""), "roles": RoleSection()}
"""What a table of any name has when nothing is said."""


def rows(first_title: str) -> list[list[str]]:
    """Return the cells of all tables of the page whose first title is ``first_title``, without their markup."""
    found = []
    for table in re.findall(rf"^\| {first_title} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        found += [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return found


def unquoted(cell: str) -> str:
    return cell.removeprefix("`").removesuffix("`")


def keys_of(section: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the keys of a struct of the schema; of a table with free names, the keys of what is in it."""
    for field in msgspec.structs.fields(section):
        key = (*prefix, field.name)
        if isinstance(field.type, type) and issubclass(field.type, Section):
            yield from keys_of(field.type, key)
        elif get_origin(field.type) is dict and isinstance(get_args(field.type)[1], type):
            yield from keys_of(get_args(field.type)[1], (*key, NAME_OF_TABLE))
        else:
            yield key


def default_at(key: tuple[str, ...]) -> str:
    value: Any = Config()
    for part in key[:-1]:
        value = TABLES[key[0]] if part == NAME_OF_TABLE else getattr(value, part)
    value = getattr(value, key[-1])
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, ByteSize):
        return value.exact()
    return "–" if value in ("", None, {}) else str(getattr(value, "value", value))


KEYS = {".".join(key): key for key in keys_of(Config)}


def test_every_key_has_one_row_and_no_row_is_of_another_key() -> None:
    assert len(KEYS) > 40
    assert sorted(unquoted(row[0]) for row in rows("key")) == sorted(KEYS)


@pytest.mark.parametrize("row", rows("key"), ids=lambda row: unquoted(row[0]))
def test_a_row_tells_default_and_variable_of_its_key(row: list[str]) -> None:
    key = KEYS[unquoted(row[0])]
    assert unquoted(row[1]) == default_at(key)
    named = (*key, "OPTION") if key[-1] == "options" else key
    assert unquoted(row[2]) == "HOLDFAST_" + "__".join(named).upper()
    assert row[3].endswith(".")


@pytest.mark.parametrize("name", [unquoted(row[0]) for row in rows("key")])
def test_a_key_that_nothing_reads_is_said_to_be_without_effect(name: str) -> None:
    attribute = re.compile(rf"\.{KEYS[name][-1]}\b")
    code = [file for file in (ROOT / "daemon/holdfast").rglob("*.py") if "config" not in file.parts]
    is_read = any(attribute.search(file.read_text()) for file in code) or name.startswith("names.")
    row = next(row for row in rows("key") if unquoted(row[0]) == name)
    assert is_read == (not row[3].endswith(WITHOUT_EFFECT))


def test_the_examples_are_configurations(tmp_path: Path) -> None:
    examples = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 2
    for number, example in enumerate(examples):
        file = tmp_path / f"{number}.toml"
        file.write_text(example)
        assert load(file).sources


def test_the_table_of_stores_says_what_the_stores_promise() -> None:
    by_library: dict[str, Capabilities] = {
        "Holdfast's own": FileStore.capabilities,
        "obstore": ObstoreStore.capabilities,
        "fsspec": FsspecStore.capabilities,
    }
    found = rows("URL")
    assert {row[1].partition(",")[0] for row in found} == set(by_library)
    for row in found:
        promised = by_library[row[1].partition(",")[0]]
        words = [promised.conditional_create, promised.atomic, promised.metadata, promised.versions]
        assert row[2:6] == ["yes" if word else "no" for word in words], row[0]
