"""The table that all verbs print, and values formatted for people.

In a pipe every column is printed whole, one line for each row, for grep and awk. On a terminal the least important
columns are left out until the rest fits its width, and a line below names them. An id is never broken or cut: if even
the columns that must stay are too wide, the terminal wraps the line.
"""

from __future__ import annotations

import json as json_
import os
import sys
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer

from dhsched.cli.lazy import is_wide

GAP = "  "
CUT_COLUMNS_MIN = 16  # A column that would have to be cut shorter than this is left out instead.
_INSTANTS = ("at_ms", "since_ms")  # Ends of the API's names for points in time; every other `_ms` is a duration.


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    least: Sequence[str] | None = None,
    cut: str = "",
    wrap: bool = False,
) -> None:
    """Print rows under their columns.

    `least` names the columns that may be left out on a narrow terminal, the first one first; by default all but the
    first column, from the right. `cut` names a column of free text, which is shortened before any column is left out.
    With `wrap` the last column is free text that goes on in the next line, between words.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    if any(columns):
        cells.insert(0, [column.upper().replace("_", " ") for column in columns])
    widths = [max((width_of(row[at]) for row in cells), default=0) for at in range(len(columns))]
    screen = screen_columns() if any(columns) else None
    kept, hint = _fit(list(columns), widths, screen, least, cut) if screen else ([*range(len(columns))], "")
    for row in cells:
        last = kept[-1]
        line = [padded(shortened(row[at], widths[at]), 0 if at == last else widths[at]) for at in kept]
        first = len(GAP.join([*line[:-1], ""]))
        wrapped = words_of(line[-1], screen - first) if wrap and screen else line[-1:]
        typer.echo(GAP.join([*line[:-1], *wrapped[:1]]).rstrip())
        for rest in wrapped[1:]:
            typer.echo(" " * first + rest)
    if hint:
        typer.echo(hint, err=True)


def _fit(
    columns: list[str], widths: list[int], screen: int, least: Sequence[str] | None, cut: str
) -> tuple[list[int], str]:
    """Return the columns that are shown, and a hint about the others. The width of `cut` is changed in place."""
    kept = list(range(len(columns)))
    going = [columns.index(name) for name in (columns[:0:-1] if least is None else least)]
    shortened_column = ""

    def over() -> int:
        return sum(widths[at] for at in kept) + len(GAP) * (len(kept) - 1) - screen

    if cut and over() > 0:
        at = columns.index(cut)
        if (left := widths[at] - over()) >= CUT_COLUMNS_MIN:
            widths[at], shortened_column = left, cut
    for at in going:
        if over() <= 0:
            break
        kept.remove(at)
    gone = [columns[at] for at in range(len(columns)) if at not in kept]
    said = [f"not shown: {', '.join(gone)}"] if gone else []
    said += [f"shortened: {shortened_column}"] if shortened_column and shortened_column not in gone else []
    words = "; ".join(said).replace("_", " ")
    return kept, f"({words}; -o wide or a pipe shows everything)" if said else ""


def screen_columns() -> int | None:
    """Return the width of the terminal on standard output; None if it is not a terminal, or does not matter."""
    if not sys.stdout.isatty() or is_wide():
        return None
    if (given := os.environ.get("COLUMNS", "")).isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


# -- cells


def one_line(text: str) -> str:
    """Return the text with unprintable characters escaped: a name or an input could move the terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def width_of(text: str) -> int:
    """Return the number of terminal columns that the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def padded(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


def words_of(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` columns. A word is never broken."""
    lines = textwrap.wrap(text, max(CUT_COLUMNS_MIN, width), break_long_words=False, break_on_hyphens=False)
    return lines or [""]


def shortened(text: str, width: int) -> str:
    """Return the text, or as much of its beginning as fits in `width` columns with an ellipsis."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) >= width:
        text = text[:-1]
    return text + "…"


# -- values


def text(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return json_.dumps(readable(value), ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)


def readable(value: Any) -> Any:
    """Return the value with its times formatted for people, each under its name without the unit."""
    if isinstance(value, list):
        return [readable(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    made: dict[str, Any] = {}
    for name, each in value.items():
        number = isinstance(each, int) and not isinstance(each, bool)
        if name.endswith(_INSTANTS) and number:
            made[name.removesuffix("_ms")] = moment(each)
        elif name.endswith("_ms") and (number or each is None):
            made[name.removesuffix("_ms")] = took(each)
        else:
            made[name] = readable(each)
    return made


def moment(at_ms: int) -> str:
    """Return a time of the store in UTC; on a terminal without the date if that is today."""
    if not at_ms:
        return "-"
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    if not sys.stdout.isatty():
        return at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    today = at.date() == datetime.now(UTC).date()
    return at.strftime("%H:%M:%SZ" if today else "%Y-%m-%d %H:%M:%SZ")


def clock(at_ms: int) -> str:
    """Return only the time of day, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3] + "Z" if at_ms else "-"


def day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d") if at_ms else "-"


def took(ms: int | None) -> str:
    """Return a duration with its unit, rounded to a few digits."""
    if ms is None:
        return "-"
    if ms < 1_000:
        return f"{ms} ms"
    if (seconds := ms / 1000) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
