"""The command `dhsched`: one file per family of verbs; this file collects them and prints their errors.

An expected error is one sentence on standard error that says what to do, and exit code 1. `--debug` before the verb
prints the traceback instead.

- *verb*: one command, like `why`; a *family* is a group of verbs, like `live`.
- *remote verb*: a verb that calls a running deployment over HTTP (remote.py).
- *role*: a process that `dhsched run` starts: dispatch, infer, worker, room (run.py).
- *sample*: the deployment on this machine that `up` and `demo` start (sample.py).

`main` loads the verb (lazy.py) and calls it. A remote verb calls `Server.call` (remote.py), which calls
client/blocking.py, and prints the answer with `show` and tables.py. `run ROLE` reads the settings (settings.py) and
calls the role's own `app.py` or `main.py`.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer

import dhsched
from dhsched.cli import context_file
from dhsched.cli.lazy import LazyGroup, Verb
from dhsched.errors import DhschedError

VERBS: Mapping[str, Verb] = {
    "up": Verb(
        "dhsched.cli.up",
        "up",
        "Run a whole deployment on this machine: talking faces with the extra `avatar`, else Workers that print.",
    ),
    "dev": Verb(
        "dhsched.cli.dev",
        "dev",
        "Run a deployment on this machine with a runtime that is reloaded when its source files change.",
    ),
    "demo": Verb(
        "dhsched.cli.demo",
        "demo",
        "Show a live survive kill -9 of its Worker, a drain, and a frozen Worker that wakes up.",
    ),
    "run": Verb("dhsched.cli.run", "app", "Run one process of a deployment in the foreground."),
    "live": Verb("dhsched.cli.live", "app", "Sessions (called lives): create, find, reassign, end, push input."),
    "worker": Verb("dhsched.cli.worker", "app", "Workers: list, show, cordon, drain, invite, join, ban."),
    "pool": Verb("dhsched.cli.pool", "app", "Pools: list, show, put, rebalance, remove."),
    "digital-id": Verb("dhsched.cli.digital_id", "app", "DigitalIDs: list, show, put, remove."),
    "tenant": Verb("dhsched.cli.tenant", "app", "Limits of tenants: list, show, set, remove; what a tenant uses."),
    "key": Verb("dhsched.cli.key", "app", "API keys and tokens: create, list, revoke, mint, rotate."),
    "store": Verb("dhsched.cli.store", "app", "The store: status, new-term, backup, verify, restore, migrate."),
    "cells": Verb(
        "dhsched.cli.cells", "app", "Cells of a deployment that has several: list, see their place in a Valkey Cluster."
    ),
    "context": Verb("dhsched.cli.context", "app", "Deployments that you call, by name: list, set, use, remove."),
    "why": Verb("dhsched.cli.live", "why", "Explain why a live is on its Worker, or why it was not placed."),
    "events": Verb("dhsched.cli.events", "events", "List the events of the fleet, the latest last."),
    "recoveries": Verb(
        "dhsched.cli.recoveries",
        "recoveries",
        "List the lives that must be placed again or wait for a free slot: why, since when, and their queue position.",
    ),
    "dead-letters": Verb(
        "dhsched.cli.live",
        "dead_letters",
        "List the input of a live that was given up because generations failed on it, the oldest first.",
    ),
    "top": Verb(
        "dhsched.cli.top",
        "top",
        "Show Pools, Workers, rates of one replica, events, and lives that wait for a Worker, until Ctrl-C.",
    ),
    "summary": Verb(
        "dhsched.cli.summary",
        "summary",
        "Show the whole deployment once: lives, slots, brake, store, safety counters, Pools and replicas.",
    ),
    "console": Verb(
        "dhsched.cli.console", "console", "Print a link to the web console, with a token that lasts an hour at most."
    ),
    "doctor": Verb(
        "dhsched.cli.doctor", "doctor", "Check this machine, the store, the roles, the Workers, settings and clocks."
    ),
    "audit": Verb(
        "dhsched.cli.audit", "audit", "List who has asked for which change, and what came of it; the latest first."
    ),
    "config": Verb(
        "dhsched.cli.config",
        "config",
        "Show the settings of a process started here without flags, and the source of each.",
    ),
    "calibrate": Verb(
        "dhsched.cli.calibrate",
        "calibrate",
        "Find how many lives may speak at once on one Worker of this machine before their output comes late.",
    ),
    "simulate": Verb(
        "dhsched.cli.simulate",
        "simulate_policies",
        "Compare the placement policies on your fleet: spread, rejections, failures.",
    ),
    "bench": Verb("dhsched.cli.bench", "app", "Benchmarks of this machine."),
}
"""All verbs and families, in the order of the help. The summary of a verb is the beginning of its docstring."""


HERE = ("up", "dev", "demo", "run", "config", "bench", "context", "calibrate")
"""Verbs that call no deployment: no context applies to them."""


class Verbs(LazyGroup):
    TABLE: ClassVar[Mapping[str, Verb]] = VERBS


class OfEachVerb(dict[str, Any]):
    """The same defaults for every verb of a family, and none for --help, the only option of a family itself."""

    def get(self, name: str, _default: Any = None) -> dict[str, Any] | None:
        return None if name == "help" else dict(self)


app = typer.Typer(
    name="dhsched",
    cls=Verbs,
    help="Control plane for long-lived, stateful, real-time sessions on GPU machines.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dhsched {dhsched.__version__}")
        raise typer.Exit


@app.callback()
def common(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    context: Annotated[
        str,
        typer.Option(
            "--context",
            metavar="NAME",
            help="Context to use, as `dhsched context` has it. [env: DHSCHED_CONTEXT] [default: the one in use]",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Options of every verb. `main` reads --debug itself: an error may come before the options are parsed."""
    context_file.choose(context)
    name = ctx.invoked_subcommand
    if name in VERBS and name is not None and name not in HERE:
        options = context_file.chosen().options()
        ctx.default_map = {name: OfEachVerb(options) if VERBS[name].attribute == "app" else options}


def main() -> None:
    """Run the verb; print an expected error as one sentence and exit with its code. This is the entry point."""
    try:
        app(prog_name="dhsched")
    except (DhschedError, KeyboardInterrupt) as error:
        if "--debug" in sys.argv[1:]:
            raise
        stopped = isinstance(error, KeyboardInterrupt)
        typer.echo("dhsched: stopped" if stopped else f"dhsched: {error}", err=True)
        sys.exit(130 if stopped else 1)
