"""The ownership protocol, pure: no store, no clock, no randomness. docs/internals/protocol.md is its prose."""
