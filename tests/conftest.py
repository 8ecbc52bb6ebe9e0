"""For all tests. Some encode media in the test's own process, and others start processes from it.

FFmpeg's objects may own threads, which a forked child does not have: one that is collected there, before the child has
become another program, waits for them for ever, and whoever forked waits for the child. So no garbage is collected
from a fork on; here it goes on behind it.
"""

import gc
import os

os.register_at_fork(before=gc.disable, after_in_parent=gc.enable)
