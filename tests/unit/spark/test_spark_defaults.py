"""spark-defaults.conf is read as Java's Properties read it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from holdfast_spark.spark_defaults import properties, spark_defaults


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("key value", {"key": "value"}),
        ("key=a=b", {"key": "a=b"}),
        (" key : value \t", {"key": "value"}),
        ("key\tvalue with words", {"key": "value with words"}),
        ("key", {"key": ""}),
        ("# key value\n! key value\n\n", {}),
        ("key 1\r\nother 2\rlast 3", {"key": "1", "other": "2", "last": "3"}),
        ("key -Da=1 \\\n    -Db=2\nother 3", {"key": "-Da=1 -Db=2", "other": "3"}),
        ("key at the end \\", {"key": "at the end"}),
        ("# a comment does not go on \\\nkey value", {"key": "value"}),
        ("key ends\\\\\nother 2", {"key": "ends\\", "other": "2"}),
        (r"key -Dx=\"a b\"", {"key": '-Dx="a b"'}),
        (r"a\ b\=c value", {"a b=c": "value"}),
        (r"key \u00e4\tb\q", {"key": "\u00e4\tbq"}),
        ("key 1\nkey 2", {"key": "2"}),
    ],
)
def test_pairs(text: str, found: dict[str, str]) -> None:
    assert properties(text) == found


def test_a_file_that_is_no_utf_8_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    (tmp_path / "spark-defaults.conf").write_bytes(b"# f\xfcr alle\nkey value\n")
    assert spark_defaults() == {"key": "value"}


def test_spark_is_where_pyspark_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert spark_defaults() == {}
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("key value\n")
    assert spark_defaults() == {"key": "value"}
