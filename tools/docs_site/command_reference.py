"""The command reference: help, arguments and options of every command, from the commands themselves."""

import re
from collections.abc import Iterator
from html import escape

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from autotune.cli import app

_EXAMPLE = "Example:"
_LIST = re.compile(r"<list\[(\w+)\]>")
"""What Typer calls an option that can be repeated; its help says so in words."""
_CODE = re.compile(r"`([^`]+)`")


def command_reference() -> str:
    """A section for each command, in the order of `autotune --help`; headings are Markdown, the rest is HTML.

    Raises TypeError when the app is not a group of plain commands.
    """
    group = typer.main.get_group(app)
    context = typer.Context(group, info_name="autotune")
    parts = [f"<p>{_html(group.help or '')}</p>", _table(_rows(group, context))]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not isinstance(command, TyperCommand):
            raise TypeError(f"autotune {name} has commands of its own, which the reference cannot show")
        parts += [
            f"\n## {name}\n",
            *_command(command, typer.Context(command, parent=context, info_name=name)),
        ]
    return "\n".join(parts)


def _command(command: TyperCommand, context: typer.Context) -> Iterator[str]:
    arguments = [_argument(p) for p in command.params if isinstance(p, TyperArgument)]
    yield _block([" ".join(["autotune", context.info_name or "", "[OPTIONS]", *arguments])])
    examples: list[str] = []
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.startswith(_EXAMPLE):
            examples = re.split(r"\s{2,}", paragraph.removeprefix(_EXAMPLE).strip())
        else:
            yield f"<p>{_html(paragraph)}</p>"
    yield _table(_rows(command, context))
    if examples:
        yield _block(examples)


def _argument(argument: TyperArgument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _rows(command: TyperCommand | TyperGroup, context: typer.Context) -> Iterator[tuple[str, str]]:
    """What can be said, and what it means."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            said, means = record
            if isinstance(parameter, TyperArgument):
                said = _argument(parameter)
            yield _LIST.sub(r"<\1>", said), means


def _table(rows: Iterator[tuple[str, str]]) -> str:
    lines = (f"<tr><td><code>{escape(said)}</code></td><td>{_html(means)}</td></tr>" for said, means in rows)
    return f'<table class="options"><tbody>{"".join(lines)}</tbody></table>'


def _block(lines: list[str]) -> str:
    return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"


def _html(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(" ".join(text.split()), quote=False))
