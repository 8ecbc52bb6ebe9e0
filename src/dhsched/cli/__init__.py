"""The command `dhsched`. Verbs live in files of their own, one per family; here is what they share.

An expected error is one sentence on standard error that says what to do, and exit code 1; a traceback is for
`--debug`, before the verb.
"""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

import dhsched
from dhsched.cli import (
    bench,
    config,
    demo,
    digital_id,
    doctor,
    events,
    key,
    live,
    pool,
    recoveries,
    run,
    simulate,
    top,
    up,
    worker,
)
from dhsched.errors import DhschedError

app = typer.Typer(
    name="dhsched",
    help="Control plane for long-lived, stateful, real-time sessions on GPU machines.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
FAMILIES = {
    "bench": bench.app,
    "run": run.app,
    "live": live.app,
    "worker": worker.app,
    "pool": pool.app,
    "digital-id": digital_id.app,
    "key": key.app,
}
VERBS: dict[str, Callable[..., None]] = {
    "up": up.up,
    "config": config.config,
    "demo": demo.demo,
    "why": live.why,
    "doctor": doctor.doctor,
    "top": top.top,
    "simulate": simulate.simulate_policies,
    "events": events.events,
    "recoveries": recoveries.recoveries,
    "dead-letters": live.dead_letters,
}
for family_name, family in FAMILIES.items():
    app.add_typer(family, name=family_name)
for verb_name, verb in VERBS.items():
    app.command(verb_name)(verb)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dhsched {dhsched.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of every verb; `main` reads --debug itself, because an error may come before the options are known."""


def main() -> None:
    """The entry point: runs the verb and turns what goes wrong into one sentence."""
    try:
        app()
    except (DhschedError, KeyboardInterrupt) as error:
        if "--debug" in sys.argv[1:]:
            raise
        stopped = isinstance(error, KeyboardInterrupt)
        typer.echo("dhsched: stopped" if stopped else f"dhsched: {error}", err=True)
        sys.exit(130 if stopped else 1)
