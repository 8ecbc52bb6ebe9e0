"""`dhsched bench ...`: measurements on this machine. Each ends with one JSON object on the last line."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from dhsched.bench.harness import print_result

app = typer.Typer(help="Measure on this machine.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Only the last line: one JSON object.")]
Bench = Callable[[Callable[[str], None]], Coroutine[Any, Any, dict[str, Any]]]


@app.command()
def link(
    json: Json = False,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds; the median counts.")] = 7,
    coroutines: Annotated[int, typer.Option(min=1, help="Concurrent callers.")] = 500,
) -> None:
    """Client CPU per EVALSHA: the link to the store against redis-py."""
    from dhsched.bench.link import Size, bench_link  # Late, so that other verbs do not load it.

    run_bench(lambda report: bench_link(Size(rounds=rounds, coroutines=coroutines), report), json)


@app.command()
def create(
    json: Json = False,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds; the median counts.")] = 5,
    creates: Annotated[
        int, typer.Option(min=1, max=7_500, help="Creates over HTTP, for 16 and 256 connections each.")
    ] = 4_000,
) -> None:
    """Creates over HTTP, and the placement step against the same as separate commands with locks."""
    from dhsched.bench.create import Size, bench_create

    run_bench(lambda report: bench_create(Size(rounds=rounds, creates=creates), report), json)


@app.command()
def select(
    json: Json = False,
    decisions: Annotated[int, typer.Option(min=250, help="Decisions for each size of fleet.")] = 20_000,
) -> None:
    """CPU time of one placement decision over 1,000 and 10,000 Workers."""
    from dhsched.bench import select as bench_select

    print_result(bench_select.run(decisions=decisions))


@app.command()
def store(
    json: Json = False,
    lives: Annotated[int, typer.Option(min=20_000, help="Lives to fill the store with.")] = 50_000,
) -> None:
    """What the steps cost the store, and what a live weighs there."""
    from dhsched.bench.store import Size, bench_store

    run_bench(lambda report: bench_store(Size(lives=lives), report), json)


@app.command("input")
def input_path(
    json: Json = False,
    lives: Annotated[int, typer.Option(min=1, help="Lives on the one Worker.")] = 2_000,
    items: Annotated[int, typer.Option(min=10, help="Items per round, as fast as they go.")] = 50_000,
    rate: Annotated[int, typer.Option(min=1, help="Items per second where lateness is measured.")] = 2_000,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds; the median counts.")] = 3,
    peers: Annotated[bool, typer.Option(help="Also redis-py and NATS.")] = True,
) -> None:
    """From push to runtime to ack through the fence, against redis-py streams and NATS JetStream."""
    from dhsched.bench.input import Size, bench_input

    size = Size(lives=lives, items=items, rate=rate, rounds=rounds, peers=peers)
    run_bench(lambda report: bench_input(size, report), json)


@app.command()
def avatar(
    json: Json = False,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=600.0, help="Media time of each live that is measured.")
    ] = 20.0,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds; the median counts.")] = 5,
    room: Annotated[
        bool, typer.Option(help="Also a whole deployment with a browser; left out, and said, where there is none.")
    ] = True,
    kills: Annotated[int, typer.Option(min=1, max=1_000, help="Kills, and as many drains, that the browser sees.")] = 5,
) -> None:
    """What a talking and an idle face cost, and what a viewer sees of kills and drains."""
    from dhsched.worker.runtimes import AVATAR, load_runtime

    load_runtime(AVATAR)  # Says what is missing.
    from dhsched.bench.avatar import Size, bench_avatar

    result = bench_avatar(Size(seconds=seconds, rounds=rounds), _silent if json else typer.echo)
    if room:
        from dhsched.bench import avatar_room

        if avatar_room.chromium() is None:
            typer.echo("no browser: room, offers and gaps are not measured; install chromium", err=True)
        else:
            size = avatar_room.Size(kills=kills, drains=kills)
            result |= measured(lambda report: avatar_room.bench_avatar_room(size, report), json)
    print_result(result)


@app.command()
def recovery(
    json: Json = False,
    lives: Annotated[int, typer.Option(min=8, max=100_000, help="Lives on all Workers together.")] = 4_000,
    workers: Annotated[int, typer.Option(min=3, max=64, help="Workers; one is killed, another one drained.")] = 8,
    rate: Annotated[int, typer.Option(min=1, help="Items per second over all lives.")] = 500,
) -> None:
    """A Worker killed and another one drained while input flows: how long it takes, and what becomes of every item."""
    from dhsched.bench.recovery import Size, bench_recovery

    run_bench(lambda report: bench_recovery(Size(lives=lives, workers=workers, rate=rate), report), json)


def run_bench(bench: Bench, json: bool) -> None:
    """Run a benchmark, and print its result last."""
    print_result(measured(bench, json))


def measured(bench: Bench, json: bool) -> dict[str, Any]:
    """Run a benchmark on the event loop that the product uses, and return its result."""
    from dhsched.web.server import product_loop

    with asyncio.Runner(loop_factory=product_loop()) as runner:
        return runner.run(bench(_silent if json else typer.echo))


def _silent(_line: str) -> None:
    pass
