"""`dhsched why`: why a live is on its Worker, or why it was not placed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, show
from dhsched.cli.tables import table, text
from dhsched.errors import DhschedError, Refused

LiveId = Annotated[str, typer.Argument(help="Id of the live.")]


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
    if won := told["chosen"]:
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
