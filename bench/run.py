"""`make bench`: every figure the project quotes, next to its peer in the same run.

python -m bench.run                  all of them
python -m bench.run codec store      some
python -m bench.run spark            all whose names begin so: spark-decode, spark-log, …
python -m bench.run compare --since COMMIT   our broker beside itself as it was then
"""

from __future__ import annotations

import argparse
import importlib
import sys

from .broker_machine import facts

BENCHMARKS = (
    *("codec", "start", "namesrv", "store", "broker", "broker-costs", "broker-java", "client", "features"),
    *("accounts", "abuse", "metrics"),
    *("ha-sync", "ha-async", "ha-catch-up", "failover-defaults", "failover-apache", "failover-cost"),
    *("spark-decode", "spark-log", "spark-topics", "spark-floor", "spark-sink"),
    *("lake-archive", "lake-compact", "lake-unified"),
)
QUICK_SECONDS = 1.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure. Run nothing else on the machine meanwhile.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)}; all unless given")
    parser.add_argument("--seconds", type=float, default=5.0, help="per measured round (default 5)")
    parser.add_argument("--quick", action="store_true", help="a look at each, too short for figures to quote")
    parser.add_argument("--since", metavar="COMMIT", default="HEAD^", help="for `compare` (default HEAD^)")
    options = parser.parse_args(arguments)
    if options.names == ["compare"]:
        print(facts(), flush=True)
        importlib.import_module("bench.compare").main(options.seconds, options.since)
        return 0
    chosen = [each for name in options.names for each in _named(name)]
    unknown = [name for name in options.names if not _named(name)]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    print(facts(), flush=True)
    seconds = QUICK_SECONDS if options.quick else options.seconds
    for name in chosen or BENCHMARKS:
        # Imported one by one: some need Java, and none should cost the others anything.
        importlib.import_module(f"bench.{name.replace('-', '_')}").main(seconds)
    return 0


def _named(name: str) -> list[str]:
    """The benchmark of that name, or those of a family."""
    return [name] if name in BENCHMARKS else [each for each in BENCHMARKS if each.startswith(f"{name}-")]


if __name__ == "__main__":
    sys.exit(main())
