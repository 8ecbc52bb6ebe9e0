"""A RESP3 client: one connection that mends itself. The package knows nothing of dhsched.

Words: a *call* is one command and the future of its reply; a *wire* is one connection; the *greeting* is what is sent
first on each; *unknown* marks a call that may have run; a *finder* says which server to connect to.
Walk: link.py queues and sends calls on a wire (wire.py). connect.py makes each wire: it finds a server (finder.py;
hosts.py for several hosts, sentinel.py for Sentinels, which both ask on connections of questions.py), dials (dial.py),
greets (greeting.py) and follows a cluster (cluster.py). refused.py keeps calls while a slot moves; address.py parses
the URL.
"""
