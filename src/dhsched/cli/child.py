"""A process of `dhsched up`: any verb of dhsched that ends when its parent does, however that ends.

    python -m dhsched.cli.child run dispatch --port 7400 ...

Its standard input is a pipe that nobody writes to. At its end the parent is gone, by Ctrl-C or by kill -9, and this
process exits at once: what it served is of no use any more, and its own children follow it by the same rule.
"""

from __future__ import annotations

import os
import sys
import threading

from dhsched.cli import main


def follow_parent() -> None:
    """Watch the pipe from a thread: an event loop that is blocked must not keep the process alive."""
    threading.Thread(target=_exit_at_end_of_input, name="parent", daemon=True).start()


def _exit_at_end_of_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    follow_parent()
    sys.argv[0] = "dhsched"
    main()
