"""The command `dhsched`: one file per family of verbs; this file collects them and prints their errors.

An expected error is one sentence on standard error that says what to do, and exit code 1. `--debug` before the verb
prints the traceback instead.

- *verb*: one command, like `why`; a *family* is a group of verbs, like `live`.
- *remote verb*: a verb that calls a running deployment over HTTP (remote.py).
- *role*: a process that `dhsched run` starts: dispatch, infer, worker, room (run.py).
- *sample*: the deployment on this machine that `up` and `demo` start (sample.py).

`main` calls the verb. A remote verb calls `Server.call` (remote.py), which calls client/http.py, and prints the answer
with `show` and tables.py. `run ROLE` reads the settings (settings.py) and calls the role's own `app.py` or `main.py`.
"""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

import dhsched
from dhsched.cli import (
    audit,
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
    store,
    tenant,
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
    "tenant": tenant.app,
    "key": key.app,
    "store": store.app,
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
    "audit": audit.audit,
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
    """Options of every verb. `main` reads --debug itself: an error may come before the options are parsed."""


def main() -> None:
    """Run the verb; print an expected error as one sentence and exit with its code. This is the entry point."""
    try:
        app()
    except (DhschedError, KeyboardInterrupt) as error:
        if "--debug" in sys.argv[1:]:
            raise
        stopped = isinstance(error, KeyboardInterrupt)
        typer.echo("dhsched: stopped" if stopped else f"dhsched: {error}", err=True)
        sys.exit(130 if stopped else 1)
