"""A Dispatch replica that starts as many lives at once on a Worker as come, for one figure: what the budget does.

    DHSCHED_STORE=URL python -m evaluation.unbudgeted

The product's replica, with one protocol limit raised. Nothing of the product imports this.
"""

from __future__ import annotations

import asyncio
from functools import partial

from dhsched.dispatch import app
from dhsched.ownership.limits import Limits
from dhsched.settings import DispatchSettings, settings_from
from dhsched.web.running import run_loop

STARTS_MAX = 100_000


def main() -> None:
    app.open_context = partial(app.open_context, limits=Limits(starts_create_max=STARTS_MAX))
    settings = settings_from(DispatchSettings, {"port": 0, "access": "open", "log_level": "error"})
    say = partial(print, "dispatch listens on", flush=True)
    run_loop(app.run_dispatch(settings, asyncio.Event(), say=say))


if __name__ == "__main__":
    main()
