"""An Infer-Controller without the fence, for one figure of the input benchmark: what the fence costs.

    DHSCHED_STORE=URL python -m dhsched.bench.input_unfenced

The guard is cut out of release_input and ack_input as they are loaded. Only this file can do that, and nothing of the
product imports it.
"""

from __future__ import annotations

import asyncio
import re

from dhsched.infer.app import run_infer
from dhsched.infer.settings import InferSettings
from dhsched.settings import settings_from
from dhsched.store.steps.scripts import Script, load, sources
from dhsched.web.server import product_loop

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
    with asyncio.Runner(loop_factory=product_loop()) as runner:
        runner.run(
            run_infer(
                settings,
                asyncio.Event(),
                scripts=unfenced_scripts(),
                say=lambda url: print(f"infer listens on {url}", flush=True),
            )
        )


if __name__ == "__main__":
    main()
