"""Plants a mutant in this interpreter and in every one that it starts, or traces it.

Python imports this module at its start where its folder is in PYTHONPATH. Each fork of forks.py has a folder of its own
with these files; PYTHONPATH is passed on also to processes that get few other variables. `mutant.json` beside this file
has the `module` and the `source` that the module has instead of its own, `traced.json` the arguments of `trace_process`
(dhsched_tracer.py).
"""

import json
import os
import sys
from typing import Any

HERE = os.path.dirname(__file__)


def given(name: str) -> Any:
    path = os.path.join(HERE, name)
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def plant() -> None:
    if mutant := given("mutant.json"):
        from planted import Planted  # type: ignore[import-not-found]

        sys.meta_path.insert(0, Planted(**mutant))
    if traced := given("traced.json"):
        from dhsched_tracer import trace_process  # type: ignore[import-not-found]

        trace_process(**traced)


plant()
