"""Migrations: how the data of an older schema becomes that of this version.

The schema is the form of what a cell keeps (`SCHEMA` in store/keys.py; docs/reference/state.md). A service works with
one schema and is refused where the cell has another one: `enter` compares it on every connection. `TABLE` has one
migration for each step from a schema to the next. `migrate` (run.py) carries out those that a cell lacks, while no
service runs:

    begin   one script: the cell's schema is now `2>3`, its home is over. Whatever still runs is refused from here on
    walk    one script for some lives, again and again, each time with a note of how far it came
    the end of the last walk writes the schema `3`

Each script is atomic, and everything that a migration must remember is in the store. So it may be killed at any point,
be run again, or be run twice at once: it goes on from where the store is. The text of a migration is frozen: it writes
the form of its own schema by itself and takes no part of lua/lib, which later versions change.
"""

from __future__ import annotations

from importlib.resources import files

from dhsched.store.keys import SCHEMA

TABLE: dict[int, str] = {2: "2_to_3"}
"""The Lua file of each migration, by the schema that it begins with; it ends with the next one."""
OLDEST = min(TABLE)


def is_known(schema: str) -> bool:
    """Return whether this version can bring data of this schema, or between two schemas, to its own."""
    first, _, then = schema.partition(">")
    return first.isdigit() and int(first) in TABLE and (not then or then == str(int(first) + 1))


def remedy(cell: str, schema: str) -> str:
    """Return the end of a sentence that says what to do about data of another schema."""
    if not is_known(schema):
        return "use the version that wrote it, or another cell"
    if ">" in schema:
        return f"its migration is not finished, run `dhsched store migrate --cell {cell}` again"
    return f"stop every service of the cell, and run `dhsched store migrate --cell {cell}`"


def read_script(name: str) -> str:
    """Return the text of a Lua file of this package."""
    return (files("dhsched.store.migrations") / "lua" / f"{name}.lua").read_text()


def scripts() -> dict[str, bytes]:
    """Return every script of the table by the name under which `migrate` runs it."""
    head = "#!lua flags=allow-oom\n"  # Also a full store must be migrated.
    walk = read_script("walk")
    walks = {name: (head + read_script(name) + walk).encode() for name in TABLE.values()}
    return {"begin": (head + read_script("begin")).encode(), **walks}


assert [*TABLE] == [*range(OLDEST, SCHEMA)], "a migration for each schema up to this version's"
