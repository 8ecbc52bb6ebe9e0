"""Options that are lists of numbers."""

import typer

SIZE_MAX = 1_000_000  # A larger number is refused, unless the option names another limit.


def sizes(text: str, option: str, most: int = SIZE_MAX) -> tuple[int, ...]:
    """Return the positive numbers of a list with commas, each once, in their order."""
    parts = [part for part in text.replace(" ", "").split(",") if part]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= most for part in parts):
        raise typer.BadParameter(f"{text!r} must be numbers from 1 to {most}, with commas", param_hint=option)
    return tuple(sorted({int(part) for part in parts}))
