"""Run a Python module in a process that ends when its parent does, however the parent ends.

    python -m dhsched.local.child dhsched.cli run dispatch --port 7400 ...

Standard input is a pipe to which nothing is written. The pipe ends when the parent closes it or is gone, by Ctrl-C or
by kill -9; then this process exits at once, and its own children do the same.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def follow_parent() -> None:
    """Exit when standard input ends. A thread watches it, because a blocked event loop must not keep the process
    alive."""
    threading.Thread(target=_exit_at_end_of_input, name="parent", daemon=True).start()


def _exit_at_end_of_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    follow_parent()
    module, sys.argv[1:] = sys.argv[1], sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
