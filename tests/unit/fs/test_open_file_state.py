"""``OpenFile`` alone changes its state: no other module assigns its attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.fs
from holdfast.fs.inodes.open_file import OpenFile

FS = Path(holdfast.fs.__file__).parent
STATE = frozenset(OpenFile.__slots__)
HOLDERS = {"opened", "open_file"}
"""What variables and attributes with an open file in them are called."""


def assigned(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each assignment to an attribute of an open file."""
    for node in ast.walk(tree):
        for target in (each for whole in _targets(node) for each in ast.walk(whole)):
            if isinstance(target, ast.Attribute) and target.attr in STATE and _name(target.value) in HOLDERS:
                yield target.lineno, ast.unparse(target)


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def _name(value: ast.expr) -> str:
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""


@pytest.mark.parametrize("module", sorted(FS.rglob("*.py")), ids=lambda path: str(path.relative_to(FS)))
def test_only_open_file_changes_its_state(module: Path) -> None:
    if module.name == "open_file.py":
        return
    assert list(assigned(ast.parse(module.read_text()))) == []


@pytest.mark.parametrize("line", ["opened.unsent = True", "node.opened.handles += 1", "self._a.opened.stamp, b = 1, 2"])
def test_an_assignment_is_found(line: str) -> None:
    assert len(list(assigned(ast.parse(line)))) == 1


def test_open_files_are_called_so_wherever_they_are_passed() -> None:
    for module in FS.rglob("*.py"):
        for function in ast.walk(ast.parse(module.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for argument in function.args.args:
                    if argument.annotation is not None and ast.unparse(argument.annotation) == "OpenFile":
                        assert argument.arg in HOLDERS, f"{module}:{argument.lineno}"
