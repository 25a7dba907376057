"""Session: what a verb works with while it runs."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .failures import CommandFailed, Exit
from .output import Output, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.admin.listing import Listing
    from pyromq.client import AdminClient
    from pyromq.client.admin.fan_out import Missing

    from .connecting import Target
    from .output import Printer


@dataclass(frozen=True, slots=True)
class Asked:
    """The common options of one call."""

    command: str
    namesrv: str | None = None
    context: str | None = None
    output: Output = Output.table
    timeout: float | None = None
    no_color: bool = False
    watch: float | None = None
    yes: bool = False
    dry_run: bool = False


class Session:
    """What a verb works with. `admin` is started; it is there unless the verb said `connects=False`.

    `exit_code` is what the command ends with if nothing fails.
    """

    admin: AdminClient

    def __init__(self, asked: Asked, target: Target, printer: Printer) -> None:
        self.asked = asked
        self.target = target
        self.printer = printer
        self.exit_code = Exit.OK

    def show(self, listing: Listing[Any]) -> None:
        """Print a table now, as before a question about it; a verb that returns it has it printed, too.

        What is missing in it is said on stderr, and makes the command end with 1.
        """
        self.printer.rows(listing.of, listing.rows)
        if listing.summary and self.printer.output is Output.table:
            print(f"\n{listing.summary}")
        sys.stdout.flush()
        self.incomplete(listing.missing)

    def incomplete(self, missing: Iterable[Missing]) -> None:
        """Say who is missing in what was printed, which makes the command end with 1."""
        for each in missing:
            self.note(f"incomplete: {each}")
            if self.exit_code is Exit.OK:
                self.exit_code = Exit.REFUSED

    def note(self, line: str) -> None:
        """Say something that is not part of the result."""
        print(f"{self.asked.command}: {one_line(line)}", file=sys.stderr)

    def text(self, text: str) -> None:
        """Print what is no table, such as stacks; with an output for programs it is left out."""
        if self.printer.output is Output.table:
            print(text)

    def agreed(self, what: str, *, dangerous: bool = False) -> bool:
        """Whether to do `what`, an imperative: "delete topic orders". Ask before every change.

        False under --dry-run, having said what would be done. What is `dangerous` needs --yes, or a yes at the
        terminal; CommandFailed without.
        """
        if self.asked.dry_run:
            self.note(f"would {what}")
            return False
        if not dangerous or self.asked.yes:
            return True
        if sys.stdin.isatty() and sys.stderr.isatty():
            if _asked(f"{one_line(what[:1].upper() + what[1:])}? [y/N] "):
                return True
            raise CommandFailed("nothing was changed", Exit.REFUSED)
        raise CommandFailed(f"nothing was changed; to {what}, say --yes", Exit.USAGE)


def _asked(question: str) -> bool:
    """Ask at the terminal. Nothing else goes on meanwhile, and the time is not counted."""
    from pyromq.client.admin.fan_out import more_time

    began = time.monotonic()
    sys.stderr.write(question)
    sys.stderr.flush()
    answer = sys.stdin.readline()
    more_time(time.monotonic() - began)
    return answer.strip().lower() in ("y", "yes")
