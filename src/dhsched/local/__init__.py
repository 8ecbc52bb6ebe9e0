"""One way to start the processes of a deployment on this machine: for `dhsched up`, benchmarks, evaluation and tests.

- *Process* (process.py): a process that this one started; it has a name, a pid, a URL once it listens, and an end.
- *Deployment* (deployment.py): the roles around one store, each a Process; all of them end with the `async with` block.
- *child* (child.py): the module that runs in such a process and ends it when its parent is gone.
- *ready line*: `<role> listens on <URL>`, or `ready`: the line that a process prints once it can be used.
- *zygote* (zygote.py): a process that has imported everything and forks others, which run after milliseconds.
- *keys* (keys.py): API keys for a deployment with access by keys, made before its processes start.

`Deployment.worker` and its siblings call `Deployment.start`, which calls `Process.start`: it runs child.py, which runs
the module `dhsched.cli`. `Process._read` finds the ready line, and waiting.py polls what no line announces. The store
itself is started by `store.server.embedded.Embedded`. This module imports nothing, because every child imports it.
"""
