"""An Infer-Controller without the fence, for one figure of the input benchmark: what the fence costs.

    DHSCHED_STORE=URL python -m dhsched.bench.input_unfenced

The guard is cut out of release_input and ack_input as they are loaded. Only this file can do that, and nothing of the
product imports it.
"""

from __future__ import annotations

import re
from functools import partial

from dhsched.infer.app import run_infer
from dhsched.infer.settings import InferSettings
from dhsched.settings import settings_from
from dhsched.store.steps.scripts import Script, load, sources
from dhsched.web import run_service

GUARDS = {
    "release_input": r"  elseif f\[1\] ~= epoch .*?number\(f\[4\]\) \}\n",
    "ack_input": r"  elseif f\[1\] ~= epoch .*?number\(f\[4\]\) \}\n",
}


def unfenced_scripts() -> dict[str, Script]:
    """The product's steps, with the guard of release and ack cut out."""
    text = sources()
    without = {}
    for step, guard in GUARDS.items():
        without[step], cuts = re.subn(guard, "", text[step], flags=re.DOTALL)
        if cuts != 1:
            raise ValueError(f"{step}.lua has {cuts} guards of the form that is cut out here")
    return load(without)


def main() -> None:
    settings = settings_from(InferSettings, {"port": 0, "access": "open", "log_level": "error"})
    say = partial(print, "infer listens on", flush=True)
    run_service(lambda stop: run_infer(settings, stop, scripts=unfenced_scripts(), say=say))


if __name__ == "__main__":
    main()
