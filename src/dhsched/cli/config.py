"""`dhsched config`: every setting, what it is now and where that came from; and docs/configuration.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from dhsched.cli.remote import show
from dhsched.cli.run import Config
from dhsched.errors import BadSetting, DhschedError
from dhsched.settings import SHARED, effective, environment_key, flag_of, nearest, settings_of, wanted_of

COLUMNS = ("role", "setting", "value", "source")
MASK = "***"


def kinds() -> dict[str, type]:
    """The settings of every role."""
    from dhsched.infer.settings import InferSettings
    from dhsched.room.settings import RoomSettings
    from dhsched.settings import DispatchSettings
    from dhsched.worker.settings import WorkerSettings

    return {kind.ROLE: kind for kind in (DispatchSettings, InferSettings, WorkerSettings, RoomSettings)}


def config(
    role: Annotated[str | None, typer.Argument(help="Only this role: dispatch, infer, worker, room.")] = None,
    config: Config = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/configuration.md instead.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Settings as a process started here without flags would have them, and where each came from."""
    if markdown:
        typer.echo(page(), nl=False)
        return
    known = kinds()
    if role is not None and role not in known:
        raise BadSetting(f"there is no role {role}{nearest(role, known)}")
    rows = [row for name in ([role] if role else known) for row in rows_of(known[name], config, alone=role is not None)]
    show(rows, json, COLUMNS, rows, least=())


def rows_of(kind: Any, file: Path | None, *, alone: bool) -> list[dict[str, Any]]:
    given = {"config": str(file) if file else None}
    lacking = [each for each in settings_of(kind) if each.default is MISSING]
    # What must be given may be missing here: another machine runs that role.
    stand_in = {each.name: "none" if each.type == "str" else each.metadata["low"] for each in lacking}
    try:
        found = effective(kind, given)
    except BadSetting as error:
        if "is not given" not in str(error):
            raise
        found = effective(kind, {**stand_in, **given})
    return [row(kind, each, found) for each in settings_of(kind)]


def row(kind: Any, each: Field[Any], found: Any) -> dict[str, Any]:
    value, source = getattr(found.settings, each.name), found.sources[each.name]
    if each.default is MISSING and source.startswith("flag"):
        value, source = None, "must be given"
    value = [*value] if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
    if each.metadata.get("secret") and value:
        value = masked(str(value))
    return {"role": kind.ROLE, "setting": each.name, "value": value, "source": source}


def masked(value: str) -> str:
    """A store's URL without its password; of anything else nothing."""
    from dhsched.store.link.address import parse_address

    try:
        return parse_address(value).redacted()
    except DhschedError:
        return MASK


# -- the page

HEAD = """# Configuration

Every setting of every role. A flag of `dhsched run ROLE` wins over the environment, which wins over the file, which
wins over the default. The file is TOML, named by `--config` or `DHSCHED_CONFIG`, with a section for each role and one
for what they share; a role's own section wins over `[shared]`:

```toml
[shared]
store = "rediss://store.internal:6379?ca=/etc/dhsched/ca.pem"
access = "keys"

[dispatch]
host = "0.0.0.0"
tls_cert = "/etc/dhsched/dispatch.pem"
tls_key = "/etc/dhsched/dispatch.key"
```

A value that does not fit stops the process before it starts, with the setting's name, where the value came from and
what it may be. A name that does not exist, in the file or in a variable that begins with the role's prefix, is refused
with the nearest one that does. `dhsched config` shows what the settings come to here and where each came from, with
secrets masked.

This page is what `dhsched config --markdown` prints, and a test keeps it so.
"""


def page() -> str:
    return "\n".join([HEAD, *sections()])


def sections() -> Iterator[str]:
    for role, kind in kinds().items():
        yield f"## {role}\n\n{(kind.__doc__ or '').strip()}\n"
        yield "| setting | default | may be | variable | what |\n|---|---|---|---|---|"
        hints = get_type_hints(kind)
        for each in settings_of(kind):
            where = "shared" if each.name in SHARED else role
            variable = environment_key(kind, each.name)
            cells = (f"`[{where}] {each.name}`", default_of(each), wanted_of(each, hints), f"`{variable}`")
            flag = f" Flag `--{flag_of(each)}`." if flag_of(each) != each.name.replace("_", "-") else ""
            yield f"| {' | '.join(cells)} | {each.metadata['why']}{flag} |"
        yield ""


def default_of(each: Field[Any]) -> str:
    value = each.default
    if value is MISSING:
        return "must be given"
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
