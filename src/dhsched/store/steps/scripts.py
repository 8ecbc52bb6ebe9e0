"""The Lua steps as they are loaded: one file each, with the parts of `lua/lib` that its header names.

A step's header is its contract: USES names the library parts, RARELY the parts that it loads on a rare path and the
names it takes from them, ARGV the arguments in order, EACH the arguments that repeat. Arguments are bound by these
names, so a call cannot swap two of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any, cast

from dhsched.ownership.limits import Limits
from dhsched.ownership.steps import SAME_HOME, STEPS
from dhsched.store.link.settling import Settle

Argument = str | bytes | int | float

LIBRARY = (
    *("clock", "base", "server", "home", "here", "counted", "now", "agenda", "record", "waiting", "worker"),
    *("candidates", "slot", "wake_own", "item", "live", "lifetime", "needs", "vacate", "gone", "finish"),
)
"""The parts of lua/lib in the order in which they build on each other."""
DENY_OOM = frozenset({"append_input", "place_create", "describe"})
"""Scripts that a full store refuses; every other one must run there, or nothing could ever be freed."""
AROUND = (
    *("snapshot", "due", "read_fields", "configure", "describe", "trouble", "change_keys", "say_once", "announce"),
    *("count_tenants", "meter_lives", "measure_pending", "write_log", "keep_lines", "note_devices", "report_replica"),
    *("settle", "same_home", "copy_config", "join_cells"),
)
"""Scripts around the protocol, which are not steps: they change no ownership."""
READ_ONLY = frozenset({"snapshot", "due", "read_fields"})
"""Scripts that run wherever the data is: they compare no home. `snapshot` tells the home of what it has read."""
NO_WRITES = READ_ONLY | {"same_home"}
HINTS = frozenset(
    {
        *("trouble", "say_once", "announce", "count_tenants"),
        *("meter_lives", "measure_pending", "write_log", "keep_lines", "note_devices", "report_replica"),
        "copy_config",
    }
)
"""Scripts whose loss harms nobody: they compare the home, as the steps of SAME_HOME do, and are not counted."""
SETTLING = Settle(writes="settle", compares="same_home")
"""Scripts behind a batch: they compare the home and the server's name, and are not counted."""
IN_LUA = {"worker": "worker_id", "number": "num", "home": "home_seen", "rev": "rev_seen"}
"""Arguments that a script calls otherwise, because the plain word names a function of its library."""
_LIMITS = frozenset(field.name for field in fields(Limits))
_SECTION = re.compile(r"-- (USES|RARELY|KEYS|ARGV|EACH|RETURNS)\b ?(.*)")


@dataclass(frozen=True, slots=True)
class Script:
    """One step, ready to load. `argv` are its fixed arguments, `each` the arguments that repeat."""

    name: str
    source: bytes
    uses: tuple[str, ...]
    argv: tuple[str, ...]
    each: tuple[str, ...]
    replies: tuple[str, ...]

    @property
    def sha1(self) -> str:
        return hashlib.sha1(self.source, usedforsecurity=False).hexdigest()

    def bind(self, limits: Mapping[str, int], values: Mapping[str, Any]) -> list[Argument]:
        """Return the fixed arguments in their order; limits are bound by their names."""
        return [limits[name] if name in limits else plain(values[name]) for name in self.argv]


def sources() -> dict[str, str]:
    """Return the text of every Lua file by its name without the ending, such as `lib/slot` and `place`."""
    root = files("dhsched.store.steps") / "lua"
    found = {f"lib/{part}": (root / "lib" / f"{part}.lua").read_text() for part in LIBRARY}
    found.update({step: (root / f"{step}.lua").read_text() for step in STEPS})
    return found


def header(source: str) -> dict[str, str]:
    """Return the sections of a step's header by name."""
    sections: dict[str, str] = {}
    section = ""
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        if match := _SECTION.match(line):
            section = match[1]
            sections[section] = match[2].strip()
        elif section:
            sections[section] += "\n" + line[2:].strip()
    return sections


def names(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[a-z_0-9]+", text))


def assemble(step: str, text: Mapping[str, str], *, name: str | None = None) -> Script:
    """Return one loadable script from a step and its library parts."""
    sections = header(text[step])
    uses = names(sections.get("USES", ""))
    if unknown := set(uses) - set(LIBRARY):
        raise ValueError(f"{step}.lua uses {sorted(unknown)}, which lua/lib does not have")
    always = checks(step)
    parts = [text[f"lib/{part}"] for part in LIBRARY if part in always or part in uses]
    name = name or step
    if "RARELY" in sections:
        parts.append(_rarely(sections["RARELY"], text))
    flags = "" if name in DENY_OOM else " flags=no-writes" if name in NO_WRITES else " flags=allow-oom"
    shebang = f"#!lua{flags}"
    body = _strip(text[step])
    if "counted" in always:
        body = f"local function run()\n{body}\nend\nlocal reply = run()\nreply[#reply + 1] = pos\nreturn reply"
    body = "\n".join([shebang, *map(_strip, parts), body])
    replies = tuple(dict.fromkeys(re.findall(r"\b[A-Z][A-Z_]+\b", sections["RETURNS"])))
    return Script(name, body.encode(), uses, names(sections.get("ARGV", "")), names(sections.get("EACH", "")), replies)


def checks(step: str) -> tuple[str, ...]:
    """Return the library parts that a script has whether its header names them or not: what it compares first."""
    if step in READ_ONLY or step == "enter":
        return ("base",)
    if step in SAME_HOME or step in HINTS:
        return ("base", "home")
    if step in (SETTLING.writes, SETTLING.compares):
        return ("base", "server", "home", "here")
    return ("base", "server", "home", "here", "counted")


def _rarely(section: str, text: Mapping[str, str]) -> str:
    """Return library parts inside a function: defining them on each run would cost a hot step more than its work."""
    uses, _, wanted = section.partition(":")
    body = "\n".join(text[f"lib/{part}"] for part in LIBRARY if part in names(uses))
    return f"local function rarely()\n{body}\nreturn {wanted}\nend"


def _strip(source: str) -> str:
    """Return the source without comment lines, which would only use the store's memory."""
    return "\n".join(line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("--"))


def load(replacements: Mapping[str, str] | None = None) -> dict[str, Script]:
    """Return all steps by name, and place once more as `place_create`, which a full store refuses.

    `replacements` replaces the text of files: tests use their own clock, and mutants.
    """
    text = {**sources(), **(replacements or {})}
    scripts = {step: assemble(step, text) for step in STEPS}
    scripts["place_create"] = assemble("place", text, name="place_create")
    return scripts


@cache
def scripts_around() -> Mapping[str, Script]:
    """Return the scripts that services run besides the steps."""
    root = files("dhsched.store.steps") / "lua"
    text = {**sources(), **{name: (root / f"{name}.lua").read_text() for name in AROUND}}
    return {name: assemble(name, text) for name in AROUND}


@cache
def default_scripts() -> Mapping[str, Script]:
    return load()


def limit_values(limits: Limits) -> dict[str, int]:
    return {name: getattr(limits, name) for name in sorted(_LIMITS)}


def plain(value: Any) -> Argument:
    """Return a value as a script takes it."""
    kind = value.__class__
    if kind is str or kind is bytes or kind is int:
        return cast(Argument, value)
    if kind is bool:
        return "1" if value else ""
    return join(value)


def join(ids: Iterable[str]) -> str:
    """Join ids to one argument: ids have no spaces."""
    return " ".join(ids)
