"""`python -m dhsched.cli`: the command `dhsched` of this interpreter."""

from dhsched.cli import main

main()
