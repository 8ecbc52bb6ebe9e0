"""Chaos: a whole deployment of real processes under seeded faults, and everything that must be true afterwards.

    python -m tests.chaos --minutes 10 --seed 1

docs/internals/chaos.md says what it does and how to read it. In the order in which a run meets them: `deployment`
(store, proxies and processes), `zygote` (forks the processes), `load` (applications and operators), `faults` (of a
storm), `trace` and `replay` (every step that the store ran, held to the model), `runtime` and `ledger` (what Workers
consumed), `storm` (one run from start to verdict).
"""
