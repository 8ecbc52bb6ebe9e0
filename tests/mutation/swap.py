"""A mutant in a process that has imported its module already: every function of the module gets its new code.

Mutants change what is inside functions and nothing else, so the functions of both sources are the same, in the same
order. What other modules have imported of them stays the same object.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import CodeType, FunctionType


def swap(old: str, new: str, path: str) -> int:
    """Give the functions that the file at `path` has defined the code of the source `new`; return how many changed."""
    before, after = [*_functions(compile(old, path, "exec"))], [*_functions(compile(new, path, "exec"))]
    codes = {_place(one): other for one, other in zip(before, after, strict=True) if one != other}
    changed = 0
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == path and _place(each.__code__) in codes:
            each.__code__ = codes[_place(each.__code__)]
            changed += 1
    return changed


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Return the functions of a module or class. A function inside a function comes with the outer one."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & 2:  # CO_NEWLOCALS: a function. The body of a class has it not.
                yield each
            else:
                yield from _functions(each)
