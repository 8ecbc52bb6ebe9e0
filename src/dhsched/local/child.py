"""Run a Python module that ends when its parent does, however the parent ends.

    python -m dhsched.local.child dhsched.cli run dispatch --port 7400 ...

Standard input is a pipe that nobody writes to. When the pipe ends, the parent is gone, by Ctrl-C or by kill -9, and
this process exits at once: nobody uses what it served, and its own children follow it by the same rule.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def follow_parent() -> None:
    """Watch the pipe from a thread: an event loop that is blocked must not keep the process alive."""
    threading.Thread(target=_exit_at_end_of_input, name="parent", daemon=True).start()


def _exit_at_end_of_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    follow_parent()
    module, sys.argv[1:] = sys.argv[1], sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
