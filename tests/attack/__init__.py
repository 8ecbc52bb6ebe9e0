"""A hostile tenant beside an honest one: what the honest one's pushes take while the other attacks.

    python -m tests.attack

Two deployments of processes run side by side. Tenant B pushes to the first one at a modest rate. Tenant A has a valid
key and attacks, from processes of its own: in some rounds the first deployment, in the others (the control) the second.
The machine is as busy either way, so the difference is what A takes from B inside one deployment.
docs/internals/testing.md says how to read the result. In the order in which a run meets them: `deployments`,
`attackers` (the processes of tenant A), `rounds` (tenant B, and what is measured).
"""
