"""What `make statements` counts."""

from __future__ import annotations

from tests.statements import Size, size_of, sizes

SOURCE = '''
"""A module."""
import os
LIMIT = 1
"""A constant."""
class Public:
    """A class."""
    def open(self):
        """A method."""
        def inner():
            """Inside."""
    def _close(self):
        """Private."""
        return os
'''


def test_docstrings_are_no_statements() -> None:
    # import, LIMIT, class, open, inner, _close, return; the module, the class and the method.
    assert size_of(SOURCE) == Size(statements=7, docstrings=3)


def test_sizes_add_up() -> None:
    found = sizes(iter([("store/keys.py", SOURCE), ("store/link/link.py", "x = 1"), ("types.py", "x = 1")]))
    assert found == {"store": Size(8, 3), ".": Size(1, 0), "total": Size(9, 3)}
