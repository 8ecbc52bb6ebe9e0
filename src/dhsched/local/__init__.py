"""One way to start the processes of a deployment on this machine: for `dhsched up`, benchmarks, evaluation and tests.

- *Process* (process.py): a process that this one started; it has a name, a pid, a URL once it listens, and an end.
- *Deployment* (deployment.py): the roles around one store, each a Process; all of them end with the `async with` block.
- *child* (child.py): the module that runs in such a process and ends it when its parent is gone.
- *ready line*: `<role> listens on <URL>`, or `ready`: what a process prints once it can be used.

The store itself is started by `store.server.embedded.Embedded`. This module imports nothing, because every child
imports it.
"""
