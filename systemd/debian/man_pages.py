"""Manual pages from what the programs say of themselves, and holdfast.toml(5) from the tables of ``docs/configuration.md``.

Roff (groff_man(7)) is written here directly: it takes a dozen requests.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass

from typer import Context
from typer.core import TyperCommand, TyperGroup

from holdfast import __version__

_ROW = re.compile(r"^\| `([^`]+)` \| (.+?) \| `(HOLDFAST_[^`]+)` \| (.+) \|$")
_FILES = (
    ("/etc/holdfast/holdfast.toml", "The configuration, holdfast.toml(5)."),
    ("/etc/holdfast/environment", "Variables for the service, one NAME=value a line: credentials, above all."),
    ("/var/lib/holdfast/store", "The cache, the working directories and the index of this node."),
    ("/run/holdfast/control.sock", "The socket by which the commands reach the daemon."),
)


@dataclass(frozen=True, slots=True)
class Page:
    """One manual page."""

    name: str
    section: int
    text: str


def command_pages(root: TyperGroup, name: str) -> Iterator[Page]:
    """Yield a page for the command ``name`` and one for each of its subcommands, at any depth."""
    yield _command_page(root, [name])
    yield from _pages_below(root, [name])


def daemon_page(parser: argparse.ArgumentParser) -> Page:
    """Return the page of the daemon itself, from its argument parser."""
    lines = [*_heading(parser.prog, 8, parser.description or "")]
    usage = parser.format_usage().removeprefix("usage: ")
    lines += [".SH SYNOPSIS", _plain(" ".join(usage.split())), ".SH OPTIONS"]
    for action in parser._actions:  # noqa: SLF001 argparse has no other way to its options
        names = ", ".join(action.option_strings)
        lines += _item(f"{names} {action.metavar or ''}".strip(), action.help or "")
    return Page(parser.prog, 8, _text([*lines, *_files(), *_see("holdfast(1)", "holdfast.toml(5)")]))


def configuration_page(markdown: str) -> Page:
    """Return holdfast.toml(5): the sections and keys of ``docs/configuration.md``."""
    lines = [*_heading("holdfast.toml", 5, "Configuration of the Holdfast daemon."), ".SH DESCRIPTION"]
    lines.append(_plain("TOML. Sizes are numbers of bytes or texts with a unit (500MB, 512MiB). Times are in seconds."))
    lines.append(_plain("'holdfast config show' prints what is in force and where each value came from."))
    for line in markdown.splitlines():
        if heading := re.match(r"^## `(\[.+\])`", line):
            lines.append(f".SH {_plain(heading[1])}")
        elif row := _ROW.match(line):
            key, default, variable, meaning = row.groups()
            lines += _item(key, f"{_unmarked(meaning)} Default: {_unmarked(default)}. Variable: {variable}.")
    return Page("holdfast.toml", 5, _text([*lines, *_see("holdfast(1)", "holdfastd(8)")]))


def _pages_below(group: TyperGroup, path: list[str]) -> Iterator[Page]:
    for name, command in group.commands.items():
        assert isinstance(command, TyperCommand | TyperGroup)
        yield _command_page(command, [*path, name])
        if isinstance(command, TyperGroup):
            yield from _pages_below(command, [*path, name])


def _command_page(command: TyperCommand | TyperGroup, path: list[str]) -> Page:
    context = Context(command, info_name=" ".join(path))
    lines = [*_heading("-".join(path), 1, command.get_short_help_str(200)), ".SH SYNOPSIS"]
    lines += [f".B {_plain(' '.join(path))}", _plain(" ".join(command.collect_usage_pieces(context)))]
    lines += [".SH DESCRIPTION", *(_plain(" ".join(part.split())) + "\n.PP" for part in (command.help or "").split("\n\n"))]
    if records := _records(command, context):
        lines += [".SH OPTIONS", *(line for record in records for line in _item(*record))]
    if isinstance(command, TyperGroup):
        lines.append(".SH COMMANDS")
        for name, inner in command.commands.items():
            lines += _item(f"{'-'.join([*path, name])}(1)", inner.get_short_help_str(200))
    if len(path) == 1:
        lines += _files()
    return Page("-".join(path), 1, _text([*lines, *_see("holdfast(1)", "holdfastd(8)", "holdfast.toml(5)")]))


def _records(command: TyperCommand | TyperGroup, context: Context) -> list[tuple[str, str]]:
    return [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]


def _heading(name: str, section: int, summary: str) -> list[str]:
    return [
        f'.TH "{name.upper()}" "{section}" "" "Holdfast {__version__}" "Holdfast"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(summary.rstrip('.'))}",
    ]


def _item(term: str, meaning: str) -> list[str]:
    return [".TP", f".B {_plain(term)}", _plain(" ".join(meaning.split()))]


def _files() -> list[str]:
    return [".SH FILES", *(line for path, meaning in _FILES for line in _item(path, meaning))]


def _see(*pages: str) -> list[str]:
    return [".SH SEE ALSO", _plain(", ".join(pages)), ".PP", _plain("/usr/share/doc/holdfast has the whole documentation.")]


def _unmarked(markdown: str) -> str:
    """Return the text without Markdown's marks."""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown).replace("`", "").replace("**", "")


def _plain(text: str) -> str:
    """Return the text so that roff prints it as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("–", "none")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
