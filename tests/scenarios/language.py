"""How a scenario is written: the grammar of the .txt files beside this one, and its reader.

A line is a step with the outcome it must have, `pull L A@1 => PULLING 1 after 0`, or one of eight words of the language
itself: `limits` (once, before everything else), `worker` (registers and reports), `wait`, `check`; `remember` and
`forget`: the store goes back to how it was when it was told to remember, as one that loses its last second does;
`server`: the server has this name from now on, as after a restart or a promotion; and `greeted`: what comes next comes
from a connection that greeted this home before. A step that does not run for that reason is answered HOME.
GRAMMAR is the whole syntax: capitals are values, brackets are optional, options come after the values and in any order.

A to K name Workers, L to Z name lives. `A` is the latest boot under that name; `A'` is another boot of it, registered
under that label; `A#1` is a WorkerID as the store gave it. `L` is the live `t/L`. What a line leaves out is what a
well-behaved caller would say: a fresh operation or request id, the beat it has read, the latest pull of its
generation, the last item it was handed, the mark that items have which were appended without one. An append that goes
through to a pull names the last item of that pull by `after` and its mark by `last`. The journal of an ack is the last
entry that is dropped, the number of the first one that is added, and the entries: "0 1 one two".

In an outcome the significant fields stand in order, and all of them must be there. Further fields can be asked for as
`name=value`, and the payloads of ITEMS as strings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dhsched.errors import BadSetting
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps import STEPS

GRAMMAR = {
    "limits": "NAME=NUMBER...",
    "server": "WORD",
    "greeted": "WORD",
    "enter": "NUMBER [first]",
    "worker": "BOOT [pool=WORD] [capacity=NUMBER] [labels=WORD] [replaces=WORKER]",
    "register": "BOOT [pool=WORD] [capacity=NUMBER] [labels=WORD] [replaces=WORKER]",
    "report": "WORKER [known] [partly] [home=WORD] [term=NUMBER] [rev=NUMBER] [link=WORD] [busy=TAG] [boot=WORD]"
    " [starts_create=NUMBER] [starts_recover=NUMBER] [cutovers=NUMBER]",
    "cordon": "WORKER",
    "uncordon": "WORKER",
    "drain": "WORKER",
    "undrain": "WORKER",
    "exit": "WORKER",
    "reap": "WORKER",
    "expire": "WORKER [beat=NUMBER]",
    "depart": "WORKER TAG [reason=STRING]",
    "place": "LIVE [from NUMBER] [on WORKERS...] [in WORD...] [cause WORD] [at_boundary] [op=WORD]"
    " [digital_id=WORD] [fingerprint=WORD] [room=WORD] [metadata=STRING] [config=STRING] [priority=NUMBER] [immovable]"
    " [lives_max=NUMBER] [idle_ms=NUMBER] [max_ms=NUMBER] [labels=STRING]",
    "reserve": "LIVE from NUMBER on WORKERS...",
    "hold": "LIVE NUMBER",
    "cancel": "LIVE NUMBER",
    "pull": "LIVE GENERATION [after NUMBER] [controller=WORD] [mark=WORD] [journal]",
    "append": "LIVE KIND STRING [boundary] [producer=WORD] [n=NUMBER] [request=WORD] [mark=WORD]"
    " [through GENERATION] [pull NUMBER] [after NUMBER] [last=WORD] [credit NUMBER]",
    "interrupt": "LIVE STRING [producer=WORD] [n=NUMBER] [request=WORD] [mark=WORD] [through GENERATION] [last=WORD]",
    "release": "LIVE GENERATION [pull NUMBER] [after NUMBER] [credit NUMBER] [mark=WORD]",
    "ack": "LIVE GENERATION NUMBER [state STRING] [journal STRING] [mark=WORD]",
    "emit": "LIVE GENERATION NUMBER WORD [data=STRING] [told=NUMBER]",
    "end": "LIVE [after_pending]",
    "look": "LIVE",
    "new_term": "NUMBER",
    "wait": "DURATION",
    "remember": "",
    "forget": "",
    "check": "slots WORKER TAG=STATE... | live LIVE NAME=VALUE... | worker WORKER NAME=VALUE... | cell NAME=VALUE..."
    " | free POOL WORKER... | waiting POOL LIVE... | agenda LIVE [in=DURATION] [class=NUMBER]"
    " | wakes [due] [dispatch:REPLICA:WORKER...] [infer:CONTROLLER:LIVE...], of the last step; `none` if nothing",
}
FULL_NAMES = {
    "register_worker": "register",
    "expire_worker": "expire",
    "append_input": "append",
    "release_input": "release",
    "ack_input": "ack",
    "end_live": "end",
}
SET_VERBS = ("cordon", "uncordon", "drain", "undrain", "exit", "reap")
STEP_OF = {
    **{short: step for step, short in FULL_NAMES.items()},
    **dict.fromkeys(SET_VERBS, "set_worker"),
    "interrupt": "append_input",
}
CHECKS = {
    "slots": (2, True),
    "live": (2, False),
    "worker": (2, False),
    "cell": (1, True),
    "free": (2, True),
    "waiting": (2, True),
    "agenda": (2, False),
    "wakes": (1, True),
}
"""What can be checked, how many words name it, and whether the line must say what is there."""
VALUES: dict[str, tuple[str, str]] = {
    "BOOT": (r"[A-K]\d*'*", "a Worker's label: A to K, with a prime for another boot of that name"),
    "WORKER": (r"[A-K]\d*('*|#\d+)", "a Worker: A, A' or A#1"),
    "WORKERS": (r"([\w.-]+=)?[A-K]\d*('*|#\d+)(=[A-K]\d*('*|#\d+))*", "a Worker, or equals of a Pool: gpu=A=B"),
    "LIVE": (r"(\w+/)?[L-Z]\w*", "a live: L to Z"),
    "TAG": (r"(\w+/)?[L-Z]\w*@\d+", "a slot: L@1"),
    "GENERATION": (r"[A-K]\d*('*|#\d+)@\d+", "a generation: A@1"),
    "NUMBER": (r"\d+", "a number"),
    "DURATION": (r"\d+(ms|s)", "a time: 1500ms or 2s"),
    "STRING": (r'"[^"]*"', 'a string: "..."'),
    "KIND": (r"text|config|interrupt", "a kind of input: text, config, interrupt"),
    "WORD": (r"[\w.-]+", "a word"),
}
SCENARIOS = Path(__file__).parent
TOKEN = re.compile(r'(?P<comment>#.*)|(?P<token>(?:"[^"]*"|[^\s"])+)')


class ScenarioError(AssertionError):
    """A scenario that cannot be read, or a line whose promise was not kept. The message begins with file:line."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, read: the verb, its values by name, and the words of the outcome that must follow."""

    where: str
    text: str
    verb: str
    values: Mapping[str, Any]
    expected: tuple[str, ...] = ()

    @property
    def step(self) -> str:
        return STEP_OF.get(self.verb, self.verb)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    limits: Limits
    lines: tuple[Line, ...]


def load(path: Path) -> Scenario:
    return read(path.read_text(encoding="utf-8"), path.name)


def read(text: str, name: str) -> Scenario:
    """The scenario in `text`. The first thing that cannot be read is an error that says what can stand there."""
    if not text.startswith("#"):
        raise ScenarioError(f"{name}:1: a scenario opens with a comment that says what it shows")
    lines = []
    for number, raw in enumerate(text.splitlines(), start=1):
        tokens = [match["token"] for match in TOKEN.finditer(raw) if match["token"]]
        if tokens:
            lines.append(read_line(tokens, raw.strip(), f"{name}:{number}"))
    late = [line for line in lines[1:] if line.verb == "limits"]
    if late:
        raise ScenarioError(f"{late[0].where}: limits stand once, before everything else")
    limits = read_limits(lines.pop(0)) if lines and lines[0].verb == "limits" else Limits()
    return Scenario(name, limits, tuple(lines))


def read_limits(line: Line) -> Limits:
    known = [each.name for each in fields(Limits)]
    named = line.values["named"]
    wrong = list(line.values["plain"]) + [name for name in named if name not in known]
    try:
        if not wrong:
            return Limits(**{name: int(value) for name, value in named.items()})
        problem = f"{wrong[0]!r} is no limit"
    except (ValueError, BadSetting) as error:
        problem = str(error)
    raise ScenarioError(f"{line.where}: {problem}; allowed is NAME=NUMBER with the names {', '.join(known)}")


def read_line(tokens: list[str], text: str, where: str) -> Line:
    at = tokens.index("=>") if "=>" in tokens else len(tokens)
    words, expected = tokens[:at], tokens[at + 1 :]
    verb = FULL_NAMES.get(words[0], words[0]) if words else "=>"
    if verb == "set_worker" and len(words) == 3:
        verb, words = words[2], words[:2]
    if verb not in GRAMMAR:
        raise ScenarioError(f"{where}: {verb!r} is no verb; allowed are {', '.join(GRAMMAR)}")
    step = STEP_OF.get(verb, verb)
    if step in STEPS:
        allowed = [*(outcome_word(kind) for kind in answers(step)), *([] if step == "enter" else ["HOME"])]
        if not expected or expected[0] not in allowed:
            said = f"cannot answer {expected[0]}" if expected else "needs an outcome, `=> WORD ...`"
            raise ScenarioError(f"{where}: {verb} {said}; allowed are {', '.join(allowed)}")
    elif at < len(tokens):
        raise ScenarioError(f"{where}: {verb} has no outcome; write it without =>")
    values = read_free(words[1:], where, verb) if verb in ("limits", "check") else read_values(words[1:], where, verb)
    return Line(where, text, verb, values, tuple(expected))


def answers(step: str) -> tuple[type, ...]:
    """The outcome classes of a step, from its signature."""
    outcome = get_args(get_type_hints(STEPS[step])["return"])[1]
    return get_args(outcome) or (outcome,)


def outcome_word(kind: type) -> str:
    """`NotYet` is NOT_YET."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).upper()


def read_free(words: list[str], where: str, verb: str) -> dict[str, Any]:
    """Plain words and NAME=VALUE, for the two verbs whose names are fields of something."""
    plain = [word for word in words if "=" not in word]
    named = dict(word.split("=", 1) for word in words if "=" in word)
    if verb == "check":
        kind = plain[0] if plain else ""
        needs, whole = CHECKS.get(kind, (99, False))
        if len(plain) < needs or (whole and len(plain) == needs and not named):
            raise ScenarioError(f"{where}: cannot read this check; allowed is check {GRAMMAR['check']}")
        if "in" in named:
            named["in"] = f"{read_value('DURATION', named['in'], where, GRAMMAR['check'])}ms"
    return {"plain": plain, "named": named}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a usage line: `LIVE`, `from NUMBER`, `[on WORKER...]`, `[op=WORD]`, `[force]`."""

    keyword: str
    value: str
    optional: bool
    many: bool
    attached: bool


def parts_of(usage: str) -> list[Part]:
    found = []
    for text in re.findall(r"\[[^\]]*\]|[a-z_]+ [A-Z]+(?:\.\.\.)?|\S+", usage):
        inner = text.strip("[]")
        keyword, _, value = inner.partition("=" if "=" in inner else " ")
        if keyword.isupper():
            keyword, value = "", keyword
        found.append(Part(keyword, value.rstrip("."), text[0] == "[", value.endswith("..."), "=" in inner))
    return found


def read_values(words: list[str], where: str, verb: str) -> dict[str, Any]:
    """The values of one line, by the usage of its verb: positions first, then options in any order."""
    usage = f"allowed is {verb} {GRAMMAR[verb]}"
    parts = parts_of(GRAMMAR[verb])
    options = {part.keyword: part for part in parts if part.keyword}
    left, values = list(words), dict[str, Any]()
    for part in parts:
        if not part.keyword:
            if not left:
                raise ScenarioError(f"{where}: {VALUES[part.value][1]} is missing; {usage}")
            values[part.value.lower()] = read_value(part.value, left.pop(0), where, usage)
    while left:
        keyword, attached, given = left.pop(0).partition("=")
        option = options.get(keyword)
        if option is None or option.attached != bool(attached):
            raise ScenarioError(f"{where}: {keyword!r} cannot stand here; {usage}")
        if not option.value:
            values[keyword] = True
            continue
        taken = [given] if attached else left[:1]
        del left[: 0 if attached else 1]
        while option.many and left and left[0].partition("=")[0] not in options:
            taken.append(left.pop(0))
        if not taken:
            raise ScenarioError(f"{where}: {keyword} needs {VALUES[option.value][1]}; {usage}")
        several = [read_value(option.value, token, where, usage) for token in taken]
        values[keyword] = several if option.many else several[0]
    for keyword, option in options.items():
        if not option.optional and keyword not in values:
            raise ScenarioError(f"{where}: {keyword} is missing; {usage}")
    return values


def read_value(kind: str, token: str, where: str, usage: str) -> Any:
    pattern, meaning = VALUES[kind]
    if not re.fullmatch(pattern, token):
        raise ScenarioError(f"{where}: {token!r} is not {meaning}; {usage}")
    match kind:
        case "NUMBER":
            return int(token)
        case "STRING":
            return token[1:-1].encode()
        case "DURATION":
            return read_ms(token)
        case "GENERATION" | "TAG":
            name, _, number = token.rpartition("@")
            return name, int(number)
    return token


def read_ms(token: str) -> int:
    return int(token[:-2]) if token.endswith("ms") else int(token[:-1]) * 1000
