"""The HTTP API: one file per kind of resource.

Each file has a class whose `endpoints()` returns `Endpoint` values; `app.Replica.endpoints` collects them. Handlers
that give a live a new generation (`create`, `reassign`) call `commit` and turn refusals into problems with `refusals`;
`parameters` has the paths and queries that several files share.
"""
