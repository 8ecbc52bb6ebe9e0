"""The command `dhsched`. Verbs live in files of their own, one per family; here is what they share.

An expected error is one sentence on standard error that says what to do, and exit code 1; a traceback is for
`--debug`, before the verb.
"""

import sys
from typing import Annotated

import typer

import dhsched
from dhsched.cli import (
    bench,
    config,
    dead_letters,
    demo,
    digital_id,
    doctor,
    events,
    key,
    live,
    live_input,
    pool,
    processes,
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
app.add_typer(bench.app, name="bench")
app.add_typer(run.app, name="run")
app.add_typer(live.app, name="live")
app.add_typer(worker.app, name="worker")
app.add_typer(pool.app, name="pool")
app.add_typer(digital_id.app, name="digital-id")
app.add_typer(key.app, name="key")
processes.add_to(run.app)
live_input.add_to(live.app)
app.command("up")(up.up)
app.command("config")(config.config)
app.command("demo")(demo.demo)
app.command("why")(live.why)
app.command("doctor")(doctor.doctor)
app.command("top")(top.top)
app.command("simulate")(simulate.simulate_policies)
app.command("events")(events.events)
app.command("recoveries")(recoveries.recoveries)
app.command("dead-letters")(dead_letters.dead_letters)


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
