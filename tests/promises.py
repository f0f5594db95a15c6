"""``./run promises``: the tests that check the statements of docs/semantics.md.

A name in brackets closes a statement there, and ``@pytest.mark.promise("name", …)`` stands on each test that checks it. The
tests are read, not imported.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_SEMANTICS, _PAGE = _ROOT / "docs/semantics.md", _ROOT / "docs/promises.md"
_BEGIN = "<!-- ./run promises writes these links -->\n"
_CODE_OR_ADDRESS = re.compile(r"`[^`]*`|^\[.*\]: .*$", re.MULTILINE)
_NAME = re.compile(r"\[([a-z][a-z0-9-]*)\](?!\()")
_HEAD = """# Promises

The tests that check each statement of [semantics.md](semantics.md), by the name in brackets that closes it. A marker on the
test has the name, and `./run promises --write` writes this page. `./run test $(./run promises close)` runs those of one.
"""


@dataclass(frozen=True)
class MarkedTest:
    """A test that has the marker, as pytest names it, and the promises that it checks."""

    node: str
    promises: tuple[str, ...]


def main() -> int:
    """Print the tests of the names asked for, or write the pages."""
    parser = argparse.ArgumentParser(prog="./run promises", description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write docs/promises.md, and the links at the end of docs/semantics.md"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="print only the tests of these names")
    options = parser.parse_args()
    semantics, tests = _SEMANTICS.read_text(), marked_tests(_ROOT)
    if unknown := set(options.names) - set(names_in(semantics)):
        parser.error(f"docs/semantics.md has no {', '.join(sorted(unknown))}")
    if options.write:
        _SEMANTICS.write_text(with_links(semantics))
        _PAGE.write_text(promises_page(semantics, tests))
    else:
        for name in options.names or names_in(semantics):
            print(*nodes_of(name, tests), sep="\n")
    return 0


def names_in(text: str) -> list[str]:
    """Return the names in brackets, in order; those in code are none, nor are links with addresses."""
    return _NAME.findall(_CODE_OR_ADDRESS.sub("", text))


def marked_tests(root: Path) -> list[MarkedTest]:
    """Return all tests below ``tests`` that have the marker, by file and line."""
    found = []
    for file in sorted((root / "tests").rglob("test_*.py")):
        text = file.read_text()
        if "pytest.mark.promise(" in text:
            path = file.relative_to(root).as_posix()
            found += [MarkedTest(f"{path}::{node}", promises) for node, promises in _markers(ast.parse(text))]
    return found


def _markers(body: ast.Module | ast.ClassDef) -> Iterator[tuple[str, tuple[str, ...]]]:
    for part in body.body:
        if isinstance(part, ast.ClassDef):
            yield from ((f"{part.name}::{node}", promises) for node, promises in _markers(part))
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = [each for each in part.decorator_list if isinstance(each, ast.Call)]
            markers = [call for call in calls if ast.unparse(call.func) == "pytest.mark.promise"]
            if markers:
                yield part.name, tuple(ast.literal_eval(argument) for marker in markers for argument in marker.args)


def nodes_of(promise: str, tests: list[MarkedTest]) -> list[str]:
    """Return the tests of one promise as pytest takes them."""
    return [test.node for test in tests if promise in test.promises]


def promises_page(semantics: str, tests: list[MarkedTest]) -> str:
    """Return the text of docs/promises.md, under the headings of docs/semantics.md."""
    parts = [_HEAD]
    for section in re.split(r"^##+ ", semantics, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        if names := names_in(text):
            parts.append(f"## {title}\n")
            parts += [f"### {name}\n\n" + "".join(f"- `{test}`\n" for test in nodes_of(name, tests)) for name in names]
    return "\n".join(parts)


def with_links(semantics: str) -> str:
    """Return the text of docs/semantics.md with the links that make its names in brackets lead to docs/promises.md."""
    text = semantics.partition(_BEGIN)[0].rstrip("\n")
    links = "".join(f"[{name}]: promises.md#{name}\n" for name in names_in(text))
    return f"{text}\n\n{_BEGIN}\n{links}"


if __name__ == "__main__":
    sys.exit(main())
