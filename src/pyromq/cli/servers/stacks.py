"""What a server is doing right now: the stacks of its threads and tasks."""

from __future__ import annotations

import asyncio
import faulthandler
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal


def dump_on(number: signal.Signals) -> None:
    """Write all stacks to stderr on this signal. Call it inside the event loop.

    The threads' stacks come from the signal handler itself, so even a hung process shows them; the tasks' stacks
    follow as soon as the loop runs.
    """
    asyncio.get_running_loop().add_signal_handler(number, dump_tasks)
    faulthandler.register(number, file=sys.stderr, all_threads=True, chain=True)


def no_dump_on(number: signal.Signals) -> None:
    """Stop doing that."""
    faulthandler.unregister(number)
    asyncio.get_running_loop().remove_signal_handler(number)


def dump_tasks() -> None:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    print(f"{len(tasks)} tasks", file=sys.stderr)
    for task in tasks:
        task.print_stack(limit=8, file=sys.stderr)
    sys.stderr.flush()
