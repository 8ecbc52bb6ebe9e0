"""The avatar: a runtime that speaks, with a face (docs/guides/avatar.md). It needs the extra `dhsched[avatar]`."""
