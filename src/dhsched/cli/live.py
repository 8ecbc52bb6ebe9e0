"""`dhsched live ...`: create, find, reassign and end lives, push input to them and watch their events."""

from __future__ import annotations

import json as json_
import secrets
import time
from math import inf
from typing import Annotated, Any

import typer

from dhsched import addresses
from dhsched.access.viewers import TTL_MAX_S, TTL_S, Grant
from dhsched.cli.live_filters import (
    Idle,
    InPool,
    Labels,
    Older,
    Shown,
    Stalled,
    State,
    WorkerFilter,
    as_query,
    end_matching,
    filters_of,
)
from dhsched.cli.live_logs import logs
from dhsched.cli.remote import (
    INFER_CONTROLLER,
    URL,
    Json,
    Server,
    Url,
    all_pages,
    lifetimes_of,
    parse_object,
    seconds_of,
    show,
    with_cell,
)
from dhsched.cli.tables import clock, one_line, took
from dhsched.cli.why import why
from dhsched.errors import BadValue

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

LiveId = Annotated[str, typer.Argument(help="Id of the live.")]
INFER = "DHSCHED_INFER"
INFER_DEFAULT = ",".join(addresses.INFER)
PUSH_S = 10.0  # A push that no controller has stored by then ends with an error.
InferUrl = Annotated[
    str, typer.Option("--infer", envvar=INFER, metavar="URL,...", help="Addresses of the Infer-Controllers.")
]
ThroughUrl = Annotated[
    str,
    typer.Option(
        "--infer",
        envvar=INFER,
        metavar="URL,...",
        help="Addresses of the Infer-Controllers. [default: through Dispatch]",
        show_default=False,
    ),
]
RoomUrl = Annotated[str, typer.Option("--room-url", envvar="DHSCHED_ROOM", metavar="URL", help="Address of the room.")]
ROOM_DEFAULT = "http://127.0.0.1:7402"
COLUMNS = ("live_id", "digital_id", "state", "worker", "epoch", "claimed", "pending", "cause")
LEAST = (
    "cause",
    "claimed",
    "epoch",
    "digital_id",
    "pending",
    "worker",
    "state",
)  # Left out on a narrow terminal, the first one first.


@app.command()
def create(
    digital_id: Annotated[str, typer.Argument(help="DigitalID that the live shows.")],
    live_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="Id of the live; a second create with the same id changes nothing. [default: made by the server]",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency-Key of the request, for a live without --id. [default: random]")
    ] = None,
    room: Annotated[str | None, typer.Option(help="Room of the live. [default: the live's id]")] = None,
    metadata: Annotated[str | None, typer.Option(help="JSON object with metadata for the runtime.")] = None,
    config: Annotated[str | None, typer.Option(help="JSON object with the runtime's configuration.")] = None,
    priority: Annotated[int | None, typer.Option(help="Priority: 0 is served first, 3 last.")] = None,
    idle: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Longest time without input, like 30m, or none. [default: the Pool's]"),
    ] = None,
    longest: Annotated[
        str | None, typer.Option("--max", metavar="TIME", help="Longest age, like 4h, or none. [default: the Pool's]")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="Label, like user=7. May be repeated.")] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for a free slot.")] = 0,
    explain: Annotated[bool, typer.Option(help="Also print why this Worker was chosen.")] = False,
    open_: Annotated[
        bool, typer.Option("--open", help="Print a link to the live's page, as watch-link does, and open it.")
    ] = False,
    room_url: RoomUrl = ROOM_DEFAULT,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Create a live and place it on a Worker."""
    given = {
        "digital_id": digital_id,
        "live_id": live_id,
        "room": room,
        "priority": priority,
        "metadata": None if metadata is None else parse_object(metadata, "--metadata"),
        "config": None if config is None else parse_object(config, "--config"),
        "labels": label or None,
    }
    body = {name: value for name, value in given.items() if value is not None} | lifetimes_of(idle, longest)
    query = {"wait_s": wait or None, "explain": "1" if explain else None}
    headers = {"Idempotency-Key": key or secrets.token_hex(16)}  # A retry at another replica makes no second live.
    server = Server(url)
    made = server.call("POST", "lives", body=body, query=query, headers=headers, wait_s=wait)
    show(made, json)
    if open_:
        page = link(server, made["live_id"], room_url, ["watch", "say", "interrupt"])
        typer.echo(page, err=json)
        typer.launch(page)


@app.command()
def get(live_id: LiveId, json: Json = False, url: Url = URL) -> None:
    """Show everything about one live except its input."""
    show(Server(url).call("GET", "lives", live_id), json)


@app.command("set")
def change(
    live_id: LiveId,
    metadata: Annotated[str | None, typer.Option(help="JSON object with the new metadata, as a whole.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Label; all others are removed. May be repeated.")] = None,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="Remove all labels.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Replace the metadata or the labels of a live."""
    if label and no_labels:
        raise BadValue("--label and --no-labels were both given; give one of them")
    body: dict[str, Any] = {} if metadata is None else {"metadata": parse_object(metadata, "--metadata")}
    if label or no_labels:
        body["labels"] = label or []
    if not body:
        raise BadValue("there is nothing to change; give --metadata, --label or --no-labels")
    show(Server(url).call("PATCH", "lives", live_id, body=body, twice=True), json)


@app.command()
def ls(
    state: State = None,
    worker: WorkerFilter = None,
    pool: InPool = None,
    digital_id: Shown = None,
    label: Labels = None,
    age: Older = None,
    idle: Idle = None,
    stalled: Stalled = False,
    tenant: Annotated[str | None, typer.Option(help="Tenant of the lives, for an admin's key.")] = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only lives that wait for a free slot.")] = False,
    moving: Annotated[bool, typer.Option("--moving", help="Only lives that are being moved.")] = False,
    pending: Annotated[bool, typer.Option("--pending", help="Only lives with input that is not acked.")] = False,
    settled: Annotated[
        str | None,
        typer.Option("--settled", help="Only lives that have not changed their Worker for this long, like 10m."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most rows.")] = 100,
    json: Json = False,
    url: Url = URL,
) -> None:
    """List lives by id."""
    query = as_query(filters_of(state, worker, pool, digital_id, label, age, idle, stalled)) | {"tenant": tenant}
    before_ms = inf if settled is None else (time.time() - seconds_of(settled, "--settled")) * 1_000

    def wanted(row: dict[str, Any]) -> bool:
        flags = (not waiting or row["waiting"], not moving or row["moving_to"], not pending or row["pending"])
        return all(flags) and row["committed_at_ms"] <= before_ms

    filtered = waiting or moving or pending or settled is not None
    rows = all_pages(url, "lives", "lives", query, limit, wanted if filtered else None)
    columns = with_cell(COLUMNS, rows)
    show({"lives": rows}, json, columns, rows, least=("cell", *LEAST) if columns != COLUMNS else LEAST)


@app.command()
def reassign(
    live_id: LiveId,
    to: Annotated[
        str | None, typer.Option(help="WorkerID of the only target. [default: any Worker with a free slot]")
    ] = None,
    avoid: Annotated[list[str] | None, typer.Option(help="Worker to try last. May be repeated.")] = None,
    epoch: Annotated[
        int | None,
        typer.Option(help="Expected epoch; refused if the live is in another. [default: its current epoch]"),
    ] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Reassign a live to another Worker."""
    server = Server(url)
    expected = server.call("GET", "lives", live_id)["epoch"] if epoch is None else epoch
    body: dict[str, Any] = {"expected_epoch": expected, "avoid": avoid or []}
    if to is not None:
        body["target"] = to
    headers = {"Idempotency-Key": secrets.token_hex(16)}
    show(server.call("POST", "lives", live_id, "reassign", body=body, headers=headers), json)


@app.command()
def end(
    live_id: Annotated[str | None, typer.Argument(help="Id of the live; without it, filters.")] = None,
    after_pending: Annotated[bool, typer.Option(help="End it only after its pending input is acked.")] = False,
    worker: WorkerFilter = None,
    pool: InPool = None,
    digital_id: Shown = None,
    label: Labels = None,
    age: Older = None,
    idle: Idle = None,
    stalled: Stalled = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Most lives to end.")] = 1_000,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before many lives are ended.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """End a live, or all that match filters: they are counted first, and it asks before it ends them."""
    filters = filters_of(None, worker, pool, digital_id, label, age, idle, stalled)
    if (live_id is None) == (not filters):
        raise BadValue("give the id of a live, or filters such as --label user=7, and not both")
    server = Server(url)
    if live_id is not None:
        show(server.call("POST", "lives", live_id, "end", body={"after_pending": after_pending}, twice=True), json)
        return
    # Those that have ended stay in the list for a while, and must not fill it.
    found = all_pages(url, "lives", "lives", as_query(filters), limit, lambda row: row["state"] != "ended")
    if found and not yes:
        typer.confirm(f"{len(found)} lives match. End them?", abort=True, err=True)
    document = end_matching(server, {**filters, "after_pending": after_pending}, len(found))
    show(document, json, ("live_id",), [{"live_id": each} for each in document["live_ids"]])
    if not json:
        more = "; others may match: run it again" if document["more"] else ""
        typer.echo(f"{len(document['live_ids'])} lives ended{more}")


@app.command()
def watch_link(
    live_id: LiveId,
    say: Annotated[bool, typer.Option("--say", help="Let the viewer type.")] = False,
    interrupt: Annotated[bool, typer.Option("--interrupt", help="Let the viewer interrupt.")] = False,
    ttl: Annotated[int, typer.Option(min=1, max=TTL_MAX_S, help="Lifetime of the link, in seconds.")] = TTL_S,
    identity: Annotated[str, typer.Option(help="Who the viewer is; shown as who said something.")] = "",
    room_url: RoomUrl = ROOM_DEFAULT,
    url: Url = URL,
) -> None:
    """Print a link with which one person watches a live in a browser."""
    asked: dict[Grant, bool] = {"watch": True, "say": say, "interrupt": interrupt}
    grants = [grant for grant, wanted in asked.items() if wanted]
    typer.echo(link(Server(url), live_id, room_url, grants, ttl_s=ttl, identity=identity))


def link(
    server: Server, live_id: str, room_url: str, grants: list[Grant], *, ttl_s: int = TTL_S, identity: str = ""
) -> str:
    """Mint a viewer token and return the address of the live's page with it."""
    import msgspec  # Late: other verbs read no documents by their type.

    from dhsched.client.models.viewers import ViewerToken

    body = {"grants": grants, "ttl_s": ttl_s, "identity": identity}
    minted = server.call("POST", "lives", live_id, "viewer-tokens", body=body, twice=True)
    return msgspec.convert(minted, ViewerToken).link(room_url)


@app.command()
def history(live_id: LiveId, json: Json = False, url: Url = URL) -> None:
    """List the generations of a live, the current one first."""
    document = Server(url).call("GET", "lives", live_id, "history")
    phases = ("detect", "place", "wait", "claim", "first_ack")
    rows = [
        {**row, "committed": clock(row["committed_at_ms"]), **{each: took(row[f"{each}_ms"]) for each in phases}}
        for row in document["generations"]
    ]
    show(document, json, ("epoch", "worker", "cause", "need", "committed", *phases), rows)
    if not json:
        if document.get("expired"):
            typer.echo(f"its lifetime is over: {document['expired']}")
        for row in rows:
            if row.get("reason"):
                typer.echo(one_line(f"epoch {row['epoch']} ended on {row['worker']}: {row['reason']}"))


app.command()(why)
app.command()(logs)


# -- input


@app.command()
def push(
    live_id: LiveId,
    text: Annotated[str, typer.Argument(help="Text to push; with --kind config, a JSON object.")] = "",
    kind: Annotated[str, typer.Option(help="Kind of the item: text, interrupt or config.")] = "text",
    boundary: Annotated[
        bool, typer.Option("--boundary", help="Mark the end of a sentence: the live may move here.")
    ] = False,
    request_id: Annotated[
        str | None,
        typer.Option(help="Id of the item; a second push with the same id changes nothing. [default: random]"),
    ] = None,
    infer: ThroughUrl = "",
    url: Url = URL,
) -> None:
    """Push one item of input to a live."""
    body = {
        "kind": kind,
        "boundary": boundary,
        **({"config": parse_object(text, "the configuration")} if kind == "config" else {"text": text}),
        "request_id": request_id or secrets.token_hex(16),  # Makes a retry at another controller safe.
    }
    typer.echo(json_.dumps(input_at(infer, url).call("POST", "lives", live_id, "text", body=body, twice=True)))


@app.command()
def interrupt(
    live_id: LiveId,
    text: Annotated[str, typer.Argument(help="Text to go on with. [default: none]")] = "",
    request_id: Annotated[
        str | None,
        typer.Option(help="Id of the item; a second push with the same id changes nothing. [default: random]"),
    ] = None,
    infer: ThroughUrl = "",
    url: Url = URL,
) -> None:
    """Drop the input that a live has not consumed yet, and stop what it is saying."""
    push(live_id, text, kind="interrupt", boundary=False, request_id=request_id, infer=infer, url=url)


@app.command()
def watch(live_id: LiveId, infer: ThroughUrl = "", url: Url = URL) -> None:
    """Print the events of a live, one JSON object per line, until it ends."""
    import asyncio  # Late: other verbs run without an event loop.

    async def print_all() -> None:
        async for event in input_at(infer, url).events("lives", live_id, "events"):
            typer.echo(json_.dumps({"event": event.name, **event.data}))
            if event.name == "ended":
                return

    asyncio.run(print_all())


def input_at(infer: str, url: str) -> Server:
    """Return where input goes: to the Infer-Controllers if their addresses are given, else through Dispatch."""
    return Server(infer, role=INFER_CONTROLLER, deadline_s=PUSH_S) if infer else Server(url, deadline_s=PUSH_S)


def dead_letters(
    live_id: LiveId,
    push: Annotated[str | None, typer.Option("--push", metavar="ID", help="Id of an item to push again.")] = None,
    drop: Annotated[str | None, typer.Option("--drop", metavar="ID", help="Id of an item to delete.")] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """List the input of a live that was given up because generations failed on it, the oldest first."""
    if push is not None and drop is not None:
        raise BadValue("--push and --drop were both given; give one of them")
    server = Server(url)
    if push is not None:
        show(server.call("POST", "lives", live_id, "dead-letters", push, "push"), json)
        return
    if drop is not None:
        server.call("DELETE", "lives", live_id, "dead-letters", drop)
        show({"live_id": live_id, "dropped": drop}, json)
        return
    document = server.call("GET", "lives", live_id, "dead-letters")
    show(
        document,
        json,
        ("id", "kind", "boundary", "text"),
        document["items"],
        least=("boundary", "kind", "text"),
        cut="text",
    )
    if not json:
        for letter in document["items"]:
            if letter.get("reason"):
                typer.echo(one_line(f"{letter['id']} was given up after: {letter['reason']}"))
