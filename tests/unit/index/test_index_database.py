"""A database of the index: pages of its records, and what is noted when they can't be what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import lmdb
import pytest

from holdfast.index.database import Database, key_after
from holdfast.index.doubt import Doubt
from tests.support.disks.spoiling import replace_key

Opened = Callable[..., Database]


def key(number: int) -> bytes:
    return b"record-%08d" % number


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Open the database again, with the file as it is."""
    environments: list[lmdb.Environment] = []

    def open_it(*, dupsort: bool = False) -> Database:
        for environment in environments:
            environment.close()
        environments.append(lmdb.open(str(tmp_path), max_dbs=2, sync=False))
        environments[-1].open_db(b"records", dupsort=dupsort)
        return Database(environments[-1], Doubt(tmp_path), b"records")

    yield open_it
    environments[-1].close()


@pytest.mark.parametrize("most", [1, 3, 10, 11])
def test_pages_have_all_records_in_the_order_of_keys(opened: Opened, most: int) -> None:
    database = opened()
    for number in reversed(range(10)):
        database.put(key(number), b"%d" % number)
    pages = list(database.pages(most=most))
    assert [len(page) for page in pages] == [most] * (10 // most) + [10 % most] * (10 % most > 0)
    assert [record for page in pages for record in page] == [(key(number), b"%d" % number) for number in range(10)]
    assert [found for found, _ in database.records(key_after(key(6)), most)] == [key(7), key(8), key(9)]


def test_pages_go_on_after_the_longest_key(opened: Opened) -> None:
    database = opened()
    keys = [b"a" * 511, b"a" * 510 + b"b", b"c"]
    database.put_all(dict.fromkeys(keys, b"x"))
    assert [found for found, _ in database.records(most=1)] == keys


@pytest.mark.parametrize("most", [50, 1000])
def test_records_out_of_order_are_refused_and_not_read_for_ever(opened: Opened, tmp_path: Path, most: int) -> None:
    """A page that ends with a small key began again before it, and grew what read it until no memory was left."""
    database = opened()
    database.put_all({key(number): b"x" for number in range(100, 200)})
    replace_key(tmp_path / "data.mdb", key(149), key(1))
    database = opened()
    with pytest.raises(lmdb.CorruptedError, match="not in the order of their keys"):
        list(islice(database.records(most=most), 1000))  # without the check it would not end
    assert Doubt(tmp_path).reason() == "its records are not in the order of their keys"


def test_a_key_before_the_one_that_was_asked_for_is_refused(opened: Opened, tmp_path: Path) -> None:
    database = opened()
    database.put_all({key(number): b"x" for number in range(100, 110)})
    replace_key(tmp_path / "data.mdb", key(105), key(1))
    with pytest.raises(lmdb.CorruptedError, match="not in the order of their keys"):
        list(opened().records(key(102)))


def test_a_database_that_orders_otherwise_than_it_was_made_is_refused(opened: Opened) -> None:
    """One bit of the file, and each change of a record would be kept beside what it was before."""
    with pytest.raises(lmdb.CorruptedError, match="has flags that it was not made with"):
        opened(dupsort=True)


def test_what_proves_damage_stays_noted_until_it_is_cleared(tmp_path: Path) -> None:
    doubt = Doubt(tmp_path)
    assert not doubt.is_noted()
    assert doubt.note()
    assert (doubt.is_noted(), doubt.reason()) == (True, "")
    doubt.note(lmdb.CorruptedError("a page is damaged, and the reason is long"))
    doubt.note(lmdb.PanicError("the disk takes no writes: that proves nothing"))
    assert doubt.reason() == "a page is damaged, and the reason is long"
    doubt.note(lmdb.PageNotFoundError("no page"))
    assert doubt.reason() == "no page"
    doubt.clear()
    doubt.clear()
    assert (doubt.is_noted(), doubt.reason()) == (False, "")
