"""`dhsched bench ...`: measurements on this machine. Each ends with one JSON object on the last line."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from dhsched.bench.harness import print_result

app = typer.Typer(help="Measure on this machine.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Only the last line: one JSON object.")]


@app.callback()
def family() -> None:
    """A family even while it has one verb: without this, typer would drop the verb's name."""


@app.command()
def link(
    json: Json = False,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds; the median counts.")] = 7,
    coroutines: Annotated[int, typer.Option(min=1, help="Concurrent callers.")] = 500,
) -> None:
    """Client CPU per EVALSHA: the link to the store against redis-py."""
    from dhsched.bench.link import Size, bench_link  # Late, so that other verbs do not load it.

    run_bench(lambda report: bench_link(Size(rounds=rounds, coroutines=coroutines), report), json)


def run_bench(bench: Callable[[Callable[[str], None]], Coroutine[Any, Any, dict[str, Any]]], json: bool) -> None:
    """Run a benchmark on the event loop that the product uses, and print its result last."""
    with asyncio.Runner(loop_factory=_product_loop()) as runner:
        print_result(runner.run(bench(_silent if json else typer.echo)))


def _product_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # Not on Windows.
        return None
    return uvloop.new_event_loop


def _silent(_line: str) -> None:
    pass
