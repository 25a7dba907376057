"""How long a test lets something take: machines are busy, so only what hangs takes longer.

That something is quick is not shown by a stopwatch but by what it would have to wait for: a test sets that to an hour.
"""

TOO_LONG = 30.0
