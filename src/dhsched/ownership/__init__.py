"""The ownership protocol, pure: no store, no clock, no randomness. docs/internals/protocol.md is its prose.

Words: a *generation* is a Worker and an epoch, which grows with each; a *slot* `live@number` stands for one generation
on a Worker; to *claim* is the first granted pull; a *move* is a reserved slot on another Worker; a *hold* stops input
before the move; the *agenda* says when to look at a live; the *floor* is the number up to which generations are void.
Walk: a step (steps/) opens a `Draft` (draft.py) of the `State` (state.py), asks the rules (fence.py, admission.py,
needs.py, poison.py, presence.py), writes through the draft, and returns the next state and an outcome (outcomes.py).
agent.py has a Worker's rules, invariants.py what must always hold.
"""
