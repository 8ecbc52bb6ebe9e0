"""The ownership protocol, pure: no store, no clock, no randomness. docs/protocol.md is its prose."""
