"""An Infer-Controller without the fence, for one figure of the input benchmark: the cost of the fence.

    DHSCHED_STORE=URL python -m dhsched.bench.input_unfenced

The guard is cut out of release_input and ack_input when they are loaded. Only this file does that, and the product does
not import it.
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
    "release_input": r"  if selected ~= worker_id .*?\n  end\n",
    "ack_input": r"  if selected ~= worker_id .*?\n  end\n",
}


def unfenced_scripts() -> dict[str, Script]:
    """Return the product's scripts, with the guard of release_input and ack_input cut out."""
    text = sources()
    without = {}
    for step, guard in GUARDS.items():
        without[step], cuts = re.subn(guard, "", text[step], flags=re.DOTALL)
        if cuts != 1:
            raise ValueError(f"{step}.lua has {cuts} guards that match GUARDS instead of 1; adapt the pattern")
    return load(without)


def main() -> None:
    settings = settings_from(InferSettings, {"port": 0, "access": "open", "log_level": "error"})
    say = partial(print, "infer listens on", flush=True)
    run_service(lambda stop: run_infer(settings, stop, scripts=unfenced_scripts(), say=say))


if __name__ == "__main__":
    main()
