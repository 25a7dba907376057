"""Session: everything a verb works with while it runs."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .failures import CREDENTIALS, CommandFailed, Exit, exit_code
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
    sign_as: str | None = None
    tls: bool = False
    output: Output = Output.table
    timeout: float | None = None
    no_color: bool = False
    watch: float | None = None
    yes: bool = False
    dry_run: bool = False


class Session:
    """What a verb works with. `admin` is started, unless the verb has `connects=False`.

    `exit_code` is the exit code if nothing fails.
    """

    admin: AdminClient

    def __init__(self, asked: Asked, target: Target, printer: Printer) -> None:
        self.asked = asked
        self.target = target
        self.printer = printer
        self.exit_code = Exit.OK

    def show(self, listing: Listing[Any]) -> None:
        """Print a table now, for example before asking about it. A table that the verb returns is printed anyway.

        Missing parts are reported on stderr and make the exit code 1.
        """
        self.printer.rows(listing.of, listing.rows)
        if listing.summary and self.printer.output is Output.table:
            print(f"\n{listing.summary}")
        sys.stdout.flush()
        self.incomplete(listing.missing)

    def incomplete(self, missing: Iterable[Missing]) -> None:
        """Report which servers are missing from the output, and make the exit code 1; 4 if all want an account."""
        missing = list(missing)
        codes = {exit_code(each.error) for each in missing}
        for each in missing:
            self.note(f"incomplete: {each}")
        if codes and self.exit_code is Exit.OK:
            self.exit_code = Exit.NOT_AUTHORISED if codes == {Exit.NOT_AUTHORISED} else Exit.REFUSED
        if Exit.NOT_AUTHORISED in codes:
            self.note(CREDENTIALS)

    def note(self, line: str) -> None:
        """Print a remark on stderr."""
        print(f"{self.asked.command}: {one_line(line)}", file=sys.stderr)

    def text(self, text: str) -> None:
        """Print free text, such as stacks; left out when the output is for programs."""
        if self.printer.output is Output.table:
            print(text)

    def agreed(self, what: str, *, dangerous: bool = False) -> bool:
        """Whether to do `what`, an imperative: "delete topic orders". Ask before every change.

        With --dry-run it prints what it would do and returns False. A `dangerous` change needs --yes or a yes at the
        terminal; otherwise CommandFailed.
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
        raise CommandFailed(f"nothing was changed; to {what}, add --yes", Exit.USAGE)


def _asked(question: str) -> bool:
    """Ask at the terminal. Everything else waits, and the deadline does not count this time."""
    from pyromq.client.admin.fan_out import more_time

    began = time.monotonic()
    sys.stderr.write(question)
    sys.stderr.flush()
    answer = sys.stdin.readline()
    more_time(time.monotonic() - began)
    return answer.strip().lower() in ("y", "yes")
