"""A group of verbs whose modules are loaded when a verb is called, and option values that need no pydantic.

Loading all verbs takes ten times as long as most verbs take. The help of the group reads the summaries in its table,
and loads nothing.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import typer
from typer import _click as click
from typer._click.globals import get_current_context
from typer.core import TyperGroup

WIDE = "dhsched.wide"
NUMBER = {int: re.compile(r"-?[0-9]{1,15}"), float: re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")}


class Verb(NamedTuple):
    """A verb, or a family of verbs: where it is, and its line in the help. `attribute` is a function or a Typer."""

    module: str
    attribute: str
    summary: str


class LazyGroup(TyperGroup):
    """A group whose `TABLE` says where each verb is."""

    TABLE: ClassVar[Mapping[str, Verb]] = {}

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = dict.fromkeys(self.TABLE, TyperGroup())  # Typer suggests one of these names for a typo.

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        read_plainly(self)  # Not earlier: Typer adds options to a group that it has made.
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.TABLE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.TABLE.get(cmd_name)
        return load(cmd_name, verb) if verb else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in self.TABLE.items()])


def load(name: str, verb: Verb) -> click.Command:
    """Import a verb or a family and return its command."""
    found = getattr(importlib.import_module(verb.module), verb.attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(found)
        found = alone
    command = typer.main.get_command(found)
    command.name = name
    for each in [command, *getattr(command, "commands", {}).values()]:
        if any(parameter.name == "json" for parameter in each.params):
            each.params.append(output_option())
        read_plainly(each)
    if isinstance(command, TyperGroup):
        command.help = verb.summary
    return command


def output_option() -> click.Parameter:
    """Return the option -o of every verb that prints JSON on request."""
    with_output = typer.Typer(add_completion=False, rich_markup_mode=None)
    with_output.command()(_with_output)
    return typer.main.get_command(with_output).params[0]


def _set_output(ctx: typer.Context, given: str | None) -> str | None:
    if given not in (None, "table", "wide", "json"):
        raise typer.BadParameter(f"{given!r} is not one of table, wide, json")
    ctx.meta[WIDE] = given == "wide"
    if given == "json":
        ctx.default_map = {**(ctx.default_map or {}), "json": True}  # As if --json were given.
    return given


def _with_output(
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FORMAT",
            help="Format of the answer: table, wide (a table with all columns on a narrow terminal, too) or json.",
            callback=_set_output,
            is_eager=True,  # The value of --json depends on it.
            expose_value=False,
        ),
    ] = None,
) -> None: ...


def is_wide() -> bool:
    """Return whether the verb that runs was called with -o wide."""
    context = get_current_context(silent=True)
    return context is not None and bool(context.meta.get(WIDE))


def read_plainly(command: click.Command) -> None:
    """Let the options and arguments of a command read plain values without pydantic."""
    for parameter in command.get_params(click.Context(command)):  # With --help, which is not in `params`.
        vars(parameter)["_runtime_param"] = PlainValue()


class PlainValue:
    """The value of an option or argument that is text, a number or absent. Any other value, and any mistake, is left
    to Typer, which loads pydantic for it. A Typer that does not know this attribute only takes longer."""

    def coerce(self, value: Any, param: Any, ctx: click.Context) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        kind, bounds = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        if kind is str and isinstance(value, str):
            return value
        if kind == list[str] and isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
            return tuple(value)
        if kind in NUMBER and (isinstance(value, (int, float)) or NUMBER[kind].fullmatch(value)):
            number = kind(value)
            low, high = bounds.min, bounds.max
            if (low is None or number >= low) and (high is None or number <= high):
                return number
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
