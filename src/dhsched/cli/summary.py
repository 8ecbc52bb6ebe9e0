"""`dhsched summary`: the whole deployment once, in a few lines."""

from __future__ import annotations

from typing import Any

import typer

from dhsched.cli.pool import barred
from dhsched.cli.remote import URL, Json, Server, Url, show
from dhsched.cli.tables import table

POOLS = ("pool", "waterline", "load", "capacity", "free", "workers", "waiting", "spread", "barred", "advice")
CELLS = ("cell", "workers", "lives", "free", "capacity", "ready")
REPLICAS = ("role", "name", "version", "ready", "up", "told", "url")


def summary(json: Json = False, url: Url = URL) -> None:
    """Show the whole deployment once: lives, slots, brake, store, safety counters, Pools and replicas.

    Exit with code 1 if a safety counter is not 0: that cannot happen, and is a defect."""
    server = Server(url)
    found, replicas = server.call("GET", "summary"), server.call("GET", "replicas")["replicas"]
    if json:
        show({**found, "replica_list": replicas}, True)
    else:
        for line in lines(found):
            typer.echo(line)
        if cells := found.get("cells"):
            table(CELLS, [cell_row(each) for each in cells], least=("capacity",), cut="ready")
        table(POOLS, [pool_row(pool) for pool in found["pools"]])
        table(REPLICAS, [replica_row(each) for each in replicas])
    if any(found["safety"][name] for name in ("dual_owners", "overshoots", "drift")):
        raise typer.Exit(1)


def lines(found: dict[str, Any]) -> list[str]:
    """Return the sentences above the tables."""
    lives, slots, store, safety = (found[name] for name in ("lives", "slots", "store", "safety"))
    ago_ms = safety["checked_ms_ago"]
    checked = "never checked" if ago_ms is None else f"checked {ago_ms / 1000:.0f} s ago"
    brake = f"on, {found['brake']['silent']} Workers silent" if found["brake"]["on"] else "off"
    return [
        f"lives: {lives['open']} open, {lives['waiting']} waiting, {lives['recovering']} recovering; "
        f"{lives['creates_waiting']} creates wait",
        f"slots: {slots['free']} free of {slots['capacity']}; brake {brake}",
        f"store: home {store['home']}, term {store['term']}, answered in {store['answered_ms']:.1f} ms, "
        f"{store['replicas']} replicas, {store['behind_bytes']} bytes behind",
        f"safety: {safety['dual_owners']} two owners, {safety['overshoots']} over capacity, {safety['drift']} drift, "
        f"{checked} by {safety['replicas']} replicas",
    ]


def cell_row(cell: dict[str, Any]) -> list[str]:
    counted = [str(cell[name]) for name in ("workers", "lives", "free", "capacity")]
    return [cell["name"], *(counted if cell["ready"] else "-" * len(counted)), cell["trouble"] or "yes"]


def pool_row(pool: dict[str, Any]) -> list[str]:
    advice = f"{pool['advised_lives']} lives to move" if pool["advised_lives"] else "-"
    return [
        pool["name"],
        f"{pool['waterline']:.0%}",
        *(str(pool[name]) for name in ("load", "capacity", "free", "workers", "waiting")),
        f"{pool['spread_pct']}%",
        barred(pool) or "-",
        advice,
    ]


def replica_row(each: dict[str, Any]) -> list[str]:
    ready = "yes" if each["ready"] else "; ".join(each["missing"])
    told = f"{each['told_ms_ago'] / 1000:.0f} s ago"
    return [each["role"], each["name"], each["version"], ready, f"{each['up_s']} s", told, each["url"] or "-"]
