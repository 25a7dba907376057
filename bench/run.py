"""`make bench`: every figure the project quotes, next to its peer in the same run.

python -m bench.run                  all of them
python -m bench.run codec store      some
"""

from __future__ import annotations

import argparse
import importlib
import sys

from .broker_machine import facts

BENCHMARKS = ("codec", "namesrv", "store", "broker", "broker-costs", "broker-java", "client")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure. Run nothing else on the machine meanwhile.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)}; all unless given")
    parser.add_argument("--seconds", type=float, default=5.0, help="per measured round (default 5)")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    print(facts(), flush=True)
    for name in options.names or BENCHMARKS:
        # Imported one by one: some need Java, and none should cost the others anything.
        importlib.import_module(f"bench.{name.replace('-', '_')}").main(options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
