"""`python -m dhsched.cli`: the command `dhsched` of this interpreter."""

import sys

from dhsched.cli import main

sys.argv[0] = "dhsched"
main()
