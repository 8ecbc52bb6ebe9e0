"""Chaos: a whole deployment of real processes under seeded faults, and everything that must be true afterwards.

    python -m tests.chaos --minutes 10 --seed 1

docs/internals/chaos.md says what it does and how to read it. In the order in which a run meets them: `deployment`
(proxies and processes), `store` (a primary and its replica) or `cluster` (three primaries), `zygote` (forks the
processes), `load` (applications and operators), `faults` (of a storm), `trace`, `replay` and `histories` (every step
that the store ran, held to the model, also where the store was set back), `runtime` and `ledger` (what Workers
consumed), `access` (keys), `hostile`, `hostile_values` and `hostile_judge` (a hostile side that has some), `storm` (one
run from start to verdict).
"""
