"""Lines of a Worker as `dhsched dev` prints them: by live, each with a colour of its own on a terminal."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

from dhsched.cli.tables import one_line

COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
LIVE = re.compile(r" live=(\S+)")
NOT_SHOWN = ("event", "level", "timestamp", "live", "epoch", "exception", "device")


def lines_of(name: str, line: bytes, *, colours: bool) -> list[str]:
    """Return the lines to print for a line that the process `name` has written. Logs of structlog are JSON; the runtime
    or a library prints any other line."""
    text = line.decode(errors="replace").rstrip("\n")
    logged = as_object(text)
    if logged is None or "event" not in logged:
        live = LIVE.search(text)
        return [shown(who(live[1], None) if live else name, text, colours=colours and live is not None)]
    level = str(logged.get("level", "info"))
    values = [f"{key}={value}" for key, value in logged.items() if key not in NOT_SHOWN]
    words = [*([] if level == "info" else [f"{level}:"]), str(logged["event"]), *values]
    by = who(str(logged["live"]), logged.get("epoch")) if "live" in logged else name
    told = [" ".join(words), *str(logged.get("exception", "")).splitlines()]
    return [shown(by, each, colours=colours and "live" in logged) for each in told]


def as_object(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def who(live: str, epoch: object) -> str:
    """Return a live without its tenant, and its epoch."""
    name = live.rpartition("/")[2]
    return name if epoch is None else f"{name}@{epoch}"


def shown(by: str, text: str, *, colours: bool) -> str:
    """Return a line behind the name of its writer. The colour depends on the live only, not on its epoch."""
    label = one_line(f"{by:<14}")
    if colours:
        colour = COLOURS[zlib.crc32(by.partition("@")[0].encode()) % len(COLOURS)]
        label = f"\x1b[{colour}m{label}\x1b[0m"
    return f"{label} {one_line(text)}"
