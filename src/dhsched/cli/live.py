"""`dhsched live ...`: create, find, reassign and end lives, push input to them and watch their events."""

from __future__ import annotations

import asyncio
import json as json_
import secrets
from typing import Annotated, Any

import msgspec
import typer

from dhsched import addresses
from dhsched.access.viewers import TTL_MAX_S, TTL_S, Grant
from dhsched.cli.remote import INFER_CONTROLLER, URL, Json, Server, Url, all_pages, parse_object, show
from dhsched.cli.tables import clock, one_line, table, text, took
from dhsched.client.models.viewers import ViewerToken
from dhsched.errors import BadValue, DhschedError, Refused

app = typer.Typer(help="Sessions (called lives): create, find, reassign, end, push input.", no_args_is_help=True)

LiveId = Annotated[str, typer.Argument(help="Id of the live.")]
INFER = "DHSCHED_INFER"
INFER_DEFAULT = ",".join(addresses.INFER)
PUSH_S = 10.0  # A push that no controller has stored by then ends with an error.
InferUrl = Annotated[
    str, typer.Option("--infer", envvar=INFER, metavar="URL,...", help="Addresses of the Infer-Controllers.")
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
            help="Id of the live; a second create with the same id changes nothing. \\[default: made by the server]",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency-Key of the request, for a live without --id. \\[default: random]")
    ] = None,
    room: Annotated[str | None, typer.Option(help="Room of the live. \\[default: the live's id]")] = None,
    metadata: Annotated[str | None, typer.Option(help="JSON object with metadata for the runtime.")] = None,
    config: Annotated[str | None, typer.Option(help="JSON object with the runtime's configuration.")] = None,
    priority: Annotated[int | None, typer.Option(help="Priority: 0 is served first, 3 last.")] = None,
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
    body: dict[str, Any] = {"digital_id": digital_id, "live_id": live_id, "room": room, "priority": priority}
    body = {name: value for name, value in body.items() if value is not None}
    for name, given in (("metadata", metadata), ("config", config)):
        if given is not None:
            body[name] = parse_object(given, f"--{name}")
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


@app.command()
def ls(
    state: Annotated[str | None, typer.Option(help="State of the lives: open, closing or ended.")] = None,
    worker: Annotated[str | None, typer.Option(help="Worker that the lives are on.")] = None,
    pool: Annotated[str | None, typer.Option(help="Pool that the lives are in.")] = None,
    digital_id: Annotated[str | None, typer.Option(help="DigitalID that the lives show.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most rows.")] = 100,
    json: Json = False,
    url: Url = URL,
) -> None:
    """List lives by id."""
    query = {"state": state, "worker": worker, "pool": pool, "digital_id": digital_id}
    rows = all_pages(url, "lives", "lives", query, limit)
    show(rows, json, COLUMNS, rows, least=LEAST)


@app.command()
def reassign(
    live_id: LiveId,
    to: Annotated[
        str | None, typer.Option(help="WorkerID of the only target. \\[default: any Worker with a free slot]")
    ] = None,
    avoid: Annotated[list[str] | None, typer.Option(help="Worker to try last. May be repeated.")] = None,
    epoch: Annotated[
        int | None,
        typer.Option(help="Expected epoch; refused if the live is in another. \\[default: its current epoch]"),
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
    live_id: LiveId,
    after_pending: Annotated[bool, typer.Option(help="End it only after its pending input is acked.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """End a live."""
    body = {"after_pending": after_pending}
    show(Server(url).call("POST", "lives", live_id, "end", body=body, twice=True), json)


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
        for row in rows:
            if row.get("reason"):
                typer.echo(one_line(f"epoch {row['epoch']} ended on {row['worker']}: {row['reason']}"))


@app.command()
def why(live_id: LiveId, json: Json = False, url: Url = URL) -> None:
    """Explain why a live is on its Worker, or why it was not placed."""
    document = decided(url, live_id)
    if json:
        show(document, True)
        return
    told, row = document["explanation"], document["generation"]
    where = f"on {row['worker']} in epoch {row['epoch']} because of {row['cause']}" if row else "not placed"
    when = "as it was decided" if document["explained"] == "then" else "as it would be decided now"
    typer.echo(f"live {live_id}: {where} ({document['outcome']}); {when}, by policy {told['policy']}")
    typer.echo(winner(document))
    lost = [each for each in told["candidates"] if each["result"] != "chosen"]
    if lost:
        typer.echo("other candidates:" if told["chosen"] else "candidates:")
        columns = ("worker", "pool", "load", "own", "score", "capacity", "starting", "result", "notes")
        table(columns, [[text(each[column]) for column in columns] for each in lost])
    named = {each["worker"] for each in told["candidates"]}
    for refusal in told["refusals"]:
        if refusal["worker"] not in named:
            typer.echo(f"{refusal['worker']} refused: {refusal['reason']} (load {refusal['load']})")
    typer.echo("Pools:")
    pools = ("pool", "tier", "priority", "waterline", "workers", "with_free_slot")
    table(pools, [[text(pool[column]) for column in pools] for pool in told["pools"]])


def decided(url: str, live_id: str) -> dict[str, Any]:
    """Return the explanation from the replica that placed the live, if it is one of `url`, else from any replica.

    Only the replica that decided remembers how, so all replicas are asked.
    """
    server = Server(url)
    found: dict[str, Any] | None = None
    trouble: DhschedError | None = None
    for each in server.urls:
        try:
            document: dict[str, Any] = Server(each).call("GET", "lives", live_id, "why")
        except DhschedError as error:
            # A live that was not placed is known only to the replica that could not place it: ask the next one.
            trouble = error
            continue
        if document["explained"] == "then":
            return document
        found = found or document
    if found is not None:
        return found
    if isinstance(trouble, Refused):
        raise trouble
    made: dict[str, Any] = server.call(
        "GET", "lives", live_id, "why"
    )  # No replica answers: raise the error that names all of them.
    return made


def winner(document: dict[str, Any]) -> str:
    """Return the line that names the chosen Worker and its load."""
    told, row = document["explanation"], document["generation"]
    won = told["chosen"]
    if won:
        size = "?" if won["capacity"] is None else won["capacity"]
        pool = f" of Pool {won['pool']}" if won["pool"] else ""
        numbers = f"at {won['load_after']}/{size} ({won['load_before']}/{size} before)"
        return f"chosen: {won['worker']}{pool} {numbers}: {won['reason']}"
    if row is None:
        return f"chosen: no Worker; {len(told['refusals'])} refused, and the store found no other in the eligible Pools"
    if not told["candidates"]:
        return f"chosen: {row['worker']}, by another replica or before a restart; now there would be no candidate"
    first = told["candidates"][0]
    share = f"{first['load'] + first['own']}/{first['capacity']}"
    return (
        f"chosen: {row['worker']}, by another replica or too long ago to remember; now the first candidate of "
        f"{len(told['candidates'])} would be {first['worker']} at {share}"
    )


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
        typer.Option(help="Id of the item; a second push with the same id changes nothing. \\[default: random]"),
    ] = None,
    infer: InferUrl = INFER_DEFAULT,
) -> None:
    """Push one item of input to a live."""
    body: dict[str, Any] = {"kind": kind, "boundary": boundary}
    if kind == "config":
        body["config"] = parse_object(text, "the configuration")
    else:
        body["text"] = text
    body["request_id"] = request_id or secrets.token_hex(16)  # Makes a retry at another controller safe.
    typer.echo(json_.dumps(infer_at(infer).call("POST", "lives", live_id, "text", body=body, twice=True)))


@app.command()
def interrupt(
    live_id: LiveId,
    text: Annotated[str, typer.Argument(help="Text to go on with. \\[default: none]")] = "",
    request_id: Annotated[
        str | None,
        typer.Option(help="Id of the item; a second push with the same id changes nothing. \\[default: random]"),
    ] = None,
    infer: InferUrl = INFER_DEFAULT,
) -> None:
    """Drop the input that a live has not consumed yet, and stop what it is saying."""
    push(live_id, text, kind="interrupt", boundary=False, request_id=request_id, infer=infer)


@app.command()
def watch(live_id: LiveId, infer: InferUrl = INFER_DEFAULT) -> None:
    """Print the events of a live, one JSON object per line, until it ends."""

    async def print_all() -> None:
        async for event in infer_at(infer).events("lives", live_id, "events"):
            typer.echo(json_.dumps({"event": event.name, **event.data}))
            if event.name == "ended":
                return

    asyncio.run(print_all())


def infer_at(urls: str) -> Server:
    return Server(urls, role=INFER_CONTROLLER, deadline_s=PUSH_S)


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
