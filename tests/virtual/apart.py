"""Virtual runs in a process of their own: nothing of an earlier run is in them, and their hashes have a fixed seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.virtual.schedule import Fault, written

HASH_SEED = "0"


@dataclass(frozen=True, slots=True)
class Found:
    """What a run in another process has reported."""

    line: dict[str, Any]
    violations: tuple[str, ...]
    latest: tuple[str, ...]
    cpu_s: float
    passed: tuple[str, ...]
    """Names of the limits that the run has passed at their default values; see `passed.py`."""
    answers: Mapping[str, int] = field(default_factory=dict)
    """How often applications, operators and readers had which answer, and how many calls `beside` has judged."""


def run_apart(
    seed: int,
    hours: float,
    faults: Sequence[Fault] | None = None,
    *,
    mutant: str = "",
    trace: str = "",
    swarm: str = "any",
    first: bool = False,
    real: bool = False,
) -> Found:
    """Run a seed. Without `faults` the run has its own schedule. With `first` it ends with its first violation; with
    `real` its store is a real server."""
    running = run_all(seed, 1, hours, faults, mutant=mutant, trace=trace, swarm=swarm, first=first, real=real)
    with closing(running) as all_found:
        return next(all_found)


def run_all(
    seed: int,
    seeds: int,
    hours: float,
    faults: Sequence[Fault] | None = None,
    *,
    mutant: str = "",
    trace: str = "",
    swarm: str = "any",
    first: bool = False,
    real: bool = False,
) -> Generator[Found]:
    """Run consecutive seeds, one after another, and yield what each has found. What is left is not run when the caller
    closes the iterator."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "errors").open("w+") as errors:
        command = [sys.executable, "-m", "tests.virtual.one", str(seed), str(hours), "--seeds", str(seeds)]
        command += ["--swarm", swarm]
        if faults is not None:
            (Path(folder) / "schedule").write_text(written(faults))
            command += ["--schedule", f"{folder}/schedule"]
        command += ["--mutant", mutant] if mutant else []
        command += ["--trace", trace] if trace else []
        command += ["--first"] if first else []
        command += ["--real"] if real else []
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}
        for name in [each for each in environment if each.startswith("DHSCHED_")]:
            del environment[name]  # The settings of a run are its seed's.
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        ) as running:
            assert running.stdout is not None
            try:
                for n in range(seeds):
                    report = running.stdout.readline()
                    if not report:
                        running.wait()
                        errors.seek(0)
                        raise RuntimeError(f"the run of seed {seed + n} has no report:\n{errors.read()[-4000:]}")
                    found = json.loads(report)
                    yield Found(
                        found["line"],
                        tuple(found["violations"]),
                        tuple(found["latest"]),
                        found["cpu_s"],
                        tuple(found["passed"]),
                        found["answers"],
                    )
            finally:
                if running.poll() is None:
                    end(running.pid)


def end(group: int) -> None:
    """End a process and the child that it waits for, if they are still there."""
    with suppress(ProcessLookupError):
        os.killpg(group, 9)
