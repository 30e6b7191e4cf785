"""tau2-bench behind a socket. It runs in tau2's own interpreter: only the standard library and tau2 here.

``python -m worker describe DOMAIN...`` prints what is installed and the tasks there are, as one line of JSON, with
the standard library alone. ``python -m worker serve SOCKET DOMAIN...`` answers each connection in a process of its
own: one line of JSON in, one line out, and the process is gone.

    {"op": "simulate", "domain", "task", "trial", "seed", "trace", "agent", "user", "judge", ...}
    {"op": "evaluate", "domain", "task", "simulation", "judge"}

Both answer ``{"simulation", "failed", "messages", "requests"}``: the official simulation with its official reward,
or what failed and whose doing it was (`people.Failed`), with what had been said until then. A process that did not
live to answer closes its connection.
"""
