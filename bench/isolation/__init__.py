"""Isolation: what one small write waits for while something large runs beside it.

`python -m bench.isolation` measures the 99th percentile of an append to another stream, over HTTP,
and of a commit to a space, a session and a graph, in process, while each route and each maintenance
task works on 1,000,000 records. Writes come at a fixed rate, half of what the server takes, and a
write is timed from when it was due: a stall counts for every write that it delays.
"""
