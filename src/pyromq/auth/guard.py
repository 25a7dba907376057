"""The one decision point: every request passes here before its processor, and learns what its rule asks for.

    ports.serve(guard.over(processors))

A request is first traced to an account, by its signature; then it is counted against the limits of that account, or of
its address if it has none; then its needs are held against the rights of that account.
Bodies that name resources are read for this as processors read them: large ones apart, so that nobody else waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import SystemBusy
from pyromq.remoting import RateLimits, origin_of, with_read

from .authority import Anyone, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from pyromq.protocol.command import Command
    from pyromq.protocol.rights import Need
    from pyromq.remoting import Connection, Processor, Rule

    from .authority import Authority
    from .refusals import Refusals

    Answer = Command | Awaitable[Command | None] | None


class RequestGuard:
    """Asks `authority` about every request to a server with these `rules`, and `rates` whether it is one too many."""

    def __init__(
        self, rules: Mapping[int, Rule], authority: Authority, refusals: Refusals, rates: RateLimits | None = None
    ) -> None:
        self._rules = rules
        self._authority = authority
        self._refusals = refusals
        self._rates = rates or RateLimits()
        # The request that was identified last, and whose it is: what its processor requires is about the same account.
        self._identified: tuple[Command | None, str | None] = None, None
        # Whether nobody is asked anything, so that there is no need to find out what to ask for.
        self.is_open = isinstance(authority, Anyone)

    @property
    def counts(self) -> bool:
        """Whether requests are counted against limits."""
        return self._rates.is_on

    @property
    def state(self) -> object:
        """Another object whenever what `secret_for` says may have changed."""
        return self._authority.state

    def secret_for(self, code: int, ext: Mapping[str, str], account: str, peer: str) -> str | None:
        """With what such requests of `account` have to be signed to pass; None if they do not, or not for that alone.

        For those who check signatures themselves, and come here with whatever is not as it should be.
        """
        rule = self._rules[code]
        try:
            self._authority.allow(account, rule.needs.of(ext), peer, rule, code)
        except Refused:
            return None
        return self._authority.secret_of(account)

    def over(self, processors: Mapping[int, Processor]) -> dict[int, Processor]:
        """`processors`, each behind this guard. With nothing to guard they are the same ones, which costs nothing.

        What this gives is old when limits of rates are switched on or off.
        """
        if self.is_open:
            return (
                {code: self._counted(each) for code, each in processors.items()}
                if self._rates.is_on
                else dict(processors)
            )
        return {code: self._guarded(code, processor) for code, processor in processors.items()}

    def require(self, connection: Connection, request: Command, needs: Iterable[Need]) -> None:
        """Raise `Refused` unless whoever sent `request` may do this. Also for what a processor finds out on its way."""
        rule = self._rules[request.code]
        try:
            account = self.account_of(connection, request)
            self._authority.allow(account, needs, connection.peer, rule, request.code)
        except Refused as refused:
            self._note(connection, request, refused)
            raise

    def account_of(self, connection: Connection, request: Command) -> str | None:
        """Who sent a request that was let in; None if nobody had to say."""
        identified, account = self._identified
        if identified is request:
            return account
        return self._authority.identify(request, connection.peer, self._rules[request.code])

    def would_allow(self, account: str | None, address: str, code: int, needs: Iterable[Need]) -> bool:
        """Whether a request of this code would be let in. For what a server tells others by itself."""
        try:
            self._authority.allow(account, needs, address, self._rules[code], code)
        except Refused:
            return False
        return True

    def count_unserved(self, connection: Connection, request: Command) -> None:
        """Count a request that no processor gets: of an unknown code, or with a body that is too large.

        It counts for its address. Whether it is signed by an account cannot be told without its body.
        """
        if self._rates.is_on:
            self._count(connection, request, None)

    def _count(self, connection: Connection, request: Command, account: str | None) -> None:
        """SystemBusy if this is one too many; the peer then has to wait before more is read from it."""
        # What was read since the last request counts for this one: the sum is right, with headers and all.
        size = connection.received - connection.charged
        connection.charged = connection.received
        who = origin_of(connection.peer) if account is None else account
        excess = self._rates.excess(who, size)
        if excess is not None:
            self._refusals.note(request.code, connection.peer, account or "", excess.why)
            connection.leave_unread(excess.wait)
            raise SystemBusy(excess.why)

    def _counted(self, processor: Processor) -> Processor:
        def process(connection: Connection, request: Command) -> Answer:
            self._count(connection, request, None)
            return processor(connection, request)

        return process

    def _guarded(self, code: int, processor: Processor) -> Processor:
        rule = self._rules[code]
        needs, body = rule.needs, rule.needs.body
        identify, allow, is_counted = self._authority.identify, self._authority.allow, self._rates.is_on

        def process(connection: Connection, request: Command) -> Answer:
            try:
                account = identify(request, connection.peer, rule)
            except Refused as refused:
                if is_counted:
                    self._count(connection, request, None)
                self._note(connection, request, refused)
                raise
            if is_counted:
                self._count(connection, request, account)
            try:
                allow(account, needs.of(request.ext or {}), connection.peer, rule, code)
            except Refused as refused:
                self._note(connection, request, refused)
                raise
            self._identified = request, account
            if body is None:
                return processor(connection, request)

            def after_body(connection: Connection, request: Command, found: tuple[Need, ...]) -> Answer:
                self._identified = request, account
                self.require(connection, request, found)
                return processor(connection, request)

            # Nobody's body is read who has not proven who they are.
            return with_read(lambda request: body(request.body_bytes), after_body)(connection, request)

        return process

    def _note(self, connection: Connection, request: Command, refused: Refused) -> None:
        self._refusals.note(request.code, connection.peer, refused.account, refused.remark)
