"""Planned moves: `plan` decides (pure), `drain` and `rebalance` start moves, `cutover` carries them out."""
