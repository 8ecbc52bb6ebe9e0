"""`dhsched bench ...`: benchmarks on this machine. Each prints its result as one JSON object on the last line."""

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Annotated, Any

import typer

from dhsched.bench.harness import print_result
from dhsched.cli.sizes import SIZE_MAX, sizes

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print only the last line: one JSON object.")]
CELLS_MAX = 16  # Numbers of cells beyond this are refused: each cell is a server, and one machine has all of them.
Bench = Callable[[Callable[[str], None]], Coroutine[Any, Any, dict[str, Any]]]


@app.command()
def link(
    json: Json = False,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds; the result is their median.")] = 7,
    coroutines: Annotated[int, typer.Option(min=1, help="Concurrent callers.")] = 500,
) -> None:
    """Measure client CPU per EVALSHA: the store link compared with auto-pipelined redis-py."""
    run_bench("link", json, rounds=rounds, coroutines=coroutines)


@app.command()
def create(
    json: Json = False,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds; the result is their median.")] = 5,
    creates: Annotated[
        int, typer.Option(min=1, max=7_500, help="Creates over HTTP, with 16 and again with 256 connections.")
    ] = 4_000,
) -> None:
    """Measure creates over HTTP, and one placement step compared with separate commands and locks."""
    run_bench("create", json, rounds=rounds, creates=creates)


@app.command()
def select(
    json: Json = False,
    decisions: Annotated[int, typer.Option(min=250, help="Decisions per fleet size.")] = 20_000,
) -> None:
    """Measure the CPU time of one placement decision among 1,000 and 10,000 Workers."""
    from dhsched.bench import select as bench_select

    print_result(bench_select.run(decisions=decisions))


@app.command()
def store(
    json: Json = False,
    lives: Annotated[int, typer.Option(min=20_000, help="Lives to fill the store with.")] = 50_000,
) -> None:
    """Measure the server CPU time of the steps, and the store's memory per live.

    append_over_xadd, release10_over_xrange10: a step divided by that bare command; `shared` steps have 16 lives a call.

    item_shared_over_bare: append, release and ack of an item, in calls of 16 lives, divided by XADD, XRANGE and XDEL.

    ack_N_kib_server_us, state_N_kib_live_bytes: an ack that replaces a state of N KiB, and the memory of that state.
    """
    run_bench("store", json, lives=lives)


@app.command()
def settle(
    json: Json = False,
    items: Annotated[int, typer.Option(min=512, help="Items per round over each link.")] = 4_096,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds; the result is their median.")] = 21,
) -> None:
    """Measure appends that wait for a replica (replicas=1), compared with appends that do not."""
    run_bench("settle", json, items=items, rounds=rounds)


@app.command("input")
def input_path(
    json: Json = False,
    lives: Annotated[int, typer.Option(min=1, help="Lives on the one Worker.")] = 2_000,
    items: Annotated[int, typer.Option(min=10, help="Items per round at full speed.")] = 50_000,
    rate: Annotated[int, typer.Option(min=1, help="Items per second while latency is measured.")] = 2_000,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds; the result is their median.")] = 3,
    peers: Annotated[bool, typer.Option(help="Also measure the peers: redis-py, twice, and NATS.")] = True,
) -> None:
    """Measure input from push to runtime to ack, compared with three peers.

    ratio_vs_redispy_pipelined: items per second divided by those of redis-py with pipelined streams: no fence, no
    deduplication, no queue per live, no trimming.

    ratio_vs_same_job: divided by those of redis-py with pipelined scripts: a queue per live, a fence, deduplication,
    trimming.

    ratio_vs_nats: divided by those of NATS JetStream with publish_async: no fence, no deduplication, no queue per live.
    """
    run_bench("input", json, lives=lives, items=items, rate=rate, rounds=rounds, peers=peers)


@app.command()
def avatar(
    json: Json = False,
    seconds: Annotated[float, typer.Option(min=1.0, max=600.0, help="Media time per live.")] = 20.0,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds; the result is their median.")] = 5,
    room: Annotated[
        bool, typer.Option(help="Also measure a whole deployment with a browser, if one is installed.")
    ] = True,
    kills: Annotated[int, typer.Option(min=1, max=1_000, help="Kills of a Worker, and as many drains.")] = 5,
) -> None:
    """Measure the CPU time of a talking and an idle face, and the gaps that a viewer sees on kills and drains."""
    from dhsched.worker.runtimes import AVATAR, load_runtime

    load_runtime(AVATAR)  # Raises an error that names the missing extra.
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
    lives: Annotated[int, typer.Option(min=8, max=100_000, help="Lives, spread over all Workers.")] = 4_000,
    workers: Annotated[int, typer.Option(min=3, max=64, help="Workers, of which one is killed and one drained.")] = 8,
    rate: Annotated[int, typer.Option(min=1, help="Items per second, over all lives.")] = 500,
) -> None:
    """Measure how long a kill and a drain of a Worker take while input flows, and count lost and repeated items.

    agent_start_ratio: CPU time of a start in a Worker's agent with 4,000 lives, divided by that with 50.
    """
    run_bench("recovery", json, lives=lives, workers=workers, rate=rate)


@app.command()
def growth(
    json: Json = False,
    lives: Annotated[str, typer.Option(help="Numbers of lives, with commas; empty: none.")] = "1000,10000,50000,100000",
    workers: Annotated[str, typer.Option(help="Numbers of Workers without lives; empty: none.")] = "10,100,1000",
    lives_per_worker: Annotated[int, typer.Option(min=1, max=10_000, help="Lives on each Worker.")] = 200,
    seconds: Annotated[float, typer.Option(min=1.0, max=600.0, help="Time of each measurement.")] = 20.0,
    settle_s: Annotated[float, typer.Option(min=0.0, max=600.0, help="Wait between creates and idle lives.")] = 40.0,
    rate: Annotated[int, typer.Option(min=1, help="Items per second while pushes are measured.")] = 500,
) -> None:
    """Measure the CPU time of creates, pushes, idle lives and reports, and memory, as lives and Workers grow."""
    run_bench(
        "growth",
        json,
        lives=sizes(lives, "--lives"),
        workers=sizes(workers, "--workers"),
        lives_per_worker=lives_per_worker,
        seconds=seconds,
        settle_s=settle_s,
        rate=rate,
    )


@app.command()
def cells(
    json: Json = False,
    cells: Annotated[str, typer.Option(help="Numbers of cells, with commas.")] = "1,2,4",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in turns; the result is their median.")] = 5,
    creates: Annotated[int, typer.Option(min=16, max=20_000, help="Creates per round.")] = 1_000,
    items: Annotated[int, typer.Option(min=64, help="Items per round.")] = 12_000,
    pushes_per_s: Annotated[int, typer.Option(min=1, help="Items per second while they are measured.")] = 3_000,
    mixed: Annotated[bool, typer.Option("--mixed", help="Send each burst to all cells, not to one.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Workers. [default: 8; with --lives one for 500 lives]")
    ] = None,
    lives: Annotated[
        int | None, typer.Option(min=1, max=SIZE_MAX, help="Idle lives of one large deployment, measured instead.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=600.0, help="Time of each measurement of the large deployment.")
    ] = 30.0,
) -> None:
    """Measure what creates and items cost the stores and the services with 1, 2 and 4 cells, at the same load.

    Each burst of creates or items goes to one cell, and the next burst to the next cell, so that the calls to a store
    have as many rows with many cells as with one. What a cell costs by itself, idle_..._us_per_s, grows with the cells
    and is taken off the other figures.

    With --lives: memory, CPU time and the times of creates with so many lives in the most of the cells, and a walk over
    all lives, page by page, while others come and go.
    """
    run_bench(
        "cells",
        json,
        cells=sizes(cells, "--cells", CELLS_MAX),
        rounds=rounds,
        creates=creates,
        items=items,
        pushes_per_s=pushes_per_s,
        mixed=mixed,
        workers=workers or 0,
        lives=lives or 0,
        seconds=seconds,
    )


def run_bench(name: str, json: bool, **size: Any) -> None:
    """Run the benchmark `bench_<name>` of dhsched/bench/<name>.py in this size, and print its result."""
    module = import_module(f"dhsched.bench.{name}")  # Late, so that other verbs do not load it.
    bench = getattr(module, f"bench_{name}")
    print_result(measured(lambda report: bench(module.Size(**size), report), json))


def measured(bench: Bench, json: bool) -> dict[str, Any]:
    """Run a benchmark on the event loop that the product uses, and return its result."""
    from dhsched.web.running import product_loop

    with asyncio.Runner(loop_factory=product_loop()) as runner:
        return runner.run(bench(_silent if json else typer.echo))


def _silent(_line: str) -> None:
    """Print nothing: with --json there is no progress."""
