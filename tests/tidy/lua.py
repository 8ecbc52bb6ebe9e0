"""Just enough reading of our own Lua for the tidy test: tokens, scopes, calls, and what a part of the library provides.

It knows how our scripts are written, not the whole language: no long strings, no goto, no methods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import get_args

import dhsched.store
from dhsched.ownership.outcomes import Refused

FOLDER = Path(dhsched.store.__path__[0]) / "steps" / "lua"
TOKEN = re.compile(r"--.*|#!.*|'(?:[^'\\\n]|\\.)*'|[A-Za-z_]\w*|\d[\w.]*|\.\.\.?|[=~<>]=|\S")
KEYWORDS = {
    *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not"),
    *("or", "repeat", "return", "then", "true", "until", "while"),
}
BUILT_IN = {
    *("redis", "string", "math", "table", "unpack", "tonumber", "tostring", "ipairs", "pairs", "type", "KEYS", "ARGV"),
}
OPTIONS = {"WITHSCORES", "LT", "LIMIT"}
"""Capital words that are arguments of commands."""
REFUSALS = {*get_args(Refused)}
HASH_COMMANDS = {"'HGET'": 1, "'HMGET'": 1, "'HDEL'": 1, "'HINCRBY'": 2, "'HSET'": 2, "'HSETNX'": 2}
"""Commands that name fields, and how far apart the fields stand."""


def tokens(source: str) -> list[str]:
    """Names, numbers, strings with their quotes, and operators; no comments."""
    return [token for token in TOKEN.findall(source) if not token.startswith(("--", "#!"))]


def is_name(token: str) -> bool:
    return (token[0].isalpha() or token[0] == "_") and token not in KEYWORDS


def names_from(code: Sequence[str], at: int) -> list[str]:
    """The names of a list `a, b, c` that begins here."""
    return [token for token in takewhile(lambda each: is_name(each) or each == ",", code[at:]) if token != ","]


def closing(code: Sequence[str], at: int) -> int:
    """Where the bracket that opens here closes."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "({[") - (code[i] in ")}]")
        if depth == 0:
            return i
    raise AssertionError(f"a bracket stays open: {' '.join(code[at : at + 8])}")


def free_names(source: str) -> list[str]:
    """Names that are neither built in nor declared above their use, in a scope that is open there."""
    code = tokens(source)
    scopes: list[set[str]] = [set()]
    loop_names: set[str] = set()
    braces, free = 0, list[str]()
    declared_until = 0
    for i, token in enumerate(code):
        before, after = code[i - 1 : i] or [""], code[i + 1 : i + 2] or [""]
        braces += (token == "{") - (token == "}")
        match token:
            case "local" if after[0] == "function":
                scopes[-1].add(code[i + 2])
            case "local":
                names = names_from(code, i + 1)
                scopes[-1].update(names)
                declared_until = i + 2 * len(names)
            case "for":
                loop_names = {*names_from(code, i + 1)}
                declared_until = i + 2 * len(loop_names)
            case "function":
                at = code.index("(", i)
                scopes.append({*names_from(code, at + 1)})
                declared_until = closing(code, at)
            case "do":
                scopes.append(loop_names)
                loop_names = set()
            case "then" | "repeat":
                scopes.append(set())
            case "else":
                scopes[-1] = set()
            case "elseif" | "end" | "until":
                scopes.pop()
        if i >= declared_until and is_name(token) and before[0] != ".":
            key = braces > 0 and after[0] == "=" and before[0] in ("{", ",")
            if not key and token not in BUILT_IN and not any(token in scope for scope in scopes):
                free.append(token)
    assert len(scopes) == 1, "blocks do not close"
    return free


# -- what a script takes and answers


def unpacked(source: str) -> tuple[str, ...]:
    """The names that ARGV is given, in order."""
    code = tokens(source)
    given: list[str] = []
    for i, token in enumerate(code):
        if token == "local" and "=" in code[i : i + 80]:
            names = names_from(code, i + 1)
            value = code[i + 2 * len(names) + 1 :][:8]
            # Where rows follow, only so many as there are names: the rows may be thousands.
            count = str(len(names))
            if "".join(value[:4]) == "unpack(ARGV)" or "".join(value) == f"unpack(ARGV,1,{count})":
                return tuple(names)
            if value[:4] == ["ARGV", "[", str(len(given) + 1), "]"]:
                given += names
    return tuple(given)


def row_function(source: str) -> tuple[str, tuple[str, ...]]:
    """The function that is called with the arguments that repeat, and its parameters."""
    call = re.search(r"(\w+)\(unpack\(ARGV, i", source)
    assert call, "EACH without a call of unpack(ARGV, i, ...)"
    code = tokens(source)
    at = next(i for i in range(len(code)) if code[i : i + 3] == ["local", "function", call[1]])
    return call[1], tuple(names_from(code, at + 4))


def words(code: Sequence[str]) -> set[str]:
    """Capital words in strings."""
    return {token.strip("'") for token in code if re.fullmatch(r"'[A-Z][A-Z_]+'", token)}


def replies(source: str) -> set[str]:
    """The words that a step answers: first in a table that it returns or builds its reply from, or given to reply()."""
    code = tokens(source)
    found, commands = set[str](), set[str]()
    for i in range(len(code) - 2):
        if code[i : i + 2] in (["return", "{"], ["=", "{"]):
            found |= words(code[i + 2 : i + 3])
        elif code[i : i + 2] == ["reply", "("]:
            found |= words([*takewhile(lambda token: token != ",", code[i + 2 :])])
        elif code[i : i + 2] == ["call", "("]:
            commands |= words(code[i + 2 : i + 3])
    other = words(code) - found - commands - REFUSALS - OPTIONS
    assert not other, f"{sorted(other)}: neither a reply, nor a refusal, nor a command"
    return found


def hash_fields(source: str) -> set[str]:
    """Fields of records that commands name."""
    found: set[str] = set()
    for command, key, *rest in calls(tokens(source)):
        if command[0] in HASH_COMMANDS and not {"slots", "'slots:'", "'boots'"} & {*key}:
            for argument in rest[:: HASH_COMMANDS[command[0]]]:
                found |= {token.strip("'") for token in argument if re.fullmatch(r"'[a-z_]+'", token)}
    return found


def calls(code: Sequence[str]) -> Iterator[list[list[str]]]:
    """The arguments of every call(...) that has at least a command and a key."""
    for i in range(len(code) - 1):
        if code[i : i + 2] == ["call", "("]:
            arguments: list[list[str]] = [[]]
            depth = 0
            for token in code[i + 2 : closing(code, i + 1)]:
                depth += (token in "({[") - (token in ")}]")
                if token == "," and depth == 0:
                    arguments.append([])
                else:
                    arguments[-1].append(token)
            if len(arguments) > 1:
                yield arguments


# -- the library


@dataclass(frozen=True, slots=True)
class Part:
    """A file of lua/lib: the names it provides, each with the names that it takes from elsewhere."""

    name: str
    provides: Mapping[str, frozenset[str]]


def read_part(name: str, source: str) -> Part:
    provides: dict[str, frozenset[str]] = {}
    for block in re.split(r"^(?=\w)(?!end\b)", source, flags=re.MULTILINE):
        code = tokens(block)
        if code[:2] == ["local", "function"]:
            provides[code[2]] = frozenset(free_names(block))
        elif code[:1] == ["local"]:
            provides |= dict.fromkeys(names_from(code, 1), frozenset(free_names(block)))
    if name == "now":
        provides["now"] = frozenset({"clock"})
    elif name == "base":
        del provides["now"]  # Declared there, given its value by the part `now`.
    return Part(name, provides)


def needed(used: set[str], parts: Mapping[str, Part], *, reads_clock: bool) -> set[str]:
    """The parts that these names come from, and those that they need in turn. `base` is always there.

    A step that reads the clock itself, where it must, does without the part `now`.
    """
    provider = {name: part for part in parts.values() for name in part.provides}
    found, seen, todo = set[str](), {"now"} if reads_clock else set[str](), [*used]
    while todo:
        name = todo.pop()
        if name not in seen and name in provider:
            seen.add(name)
            found.add(provider[name].name)
            todo += provider[name].provides[name]
    return found - {"base"}
