"""Those who decide. RocketMQ has two generations of accounts, `acl` (4.x) and `users` (5.x); a server asks one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyromq.errors import BrokerError
from pyromq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.command import Command
    from pyromq.protocol.rights import Need
    from pyromq.remoting import Rule


class Refused(BrokerError):
    """A request is not allowed. `remark` tells the client why, `account` is whom it claims to be from; no secrets."""

    def __init__(self, remark: str, *, account: str = "", code: int = ResponseCode.NO_PERMISSION) -> None:
        super().__init__(remark, code=code)
        self.account = account


class Authority(Protocol):
    """Knows accounts and what they may do. Raises `Refused` for what it does not allow.

    First comes `identify`, which proves who sent a request; then `allow`, once for all that its header says, and again
    for what its body says. What is decided in a processor, because only the store knows the topic of a message, is
    asked for by `RequestGuard.require`.
    """

    def identify(self, request: Command, address: str, rule: Rule) -> str | None:
        """The account that signed `request`; None for someone who needs none, as by address or because all is open."""

    def allow(self, account: str | None, needs: Iterable[Need], address: str, rule: Rule, code: int) -> None:
        """Return if `account` may do all that `needs` says."""

    def secret_of(self, account: str) -> str | None:
        """With what `account` signs its requests; None if it does not exist, or may not sign."""

    @property
    def state(self) -> object:
        """Another object whenever accounts or rights have changed: what was decided before does not count then."""


class Anyone:
    """No access control: everybody may do everything, as RocketMQ's default is."""

    def identify(self, request: Command, address: str, rule: Rule) -> str | None:
        return None

    def allow(self, account: str | None, needs: Iterable[Need], address: str, rule: Rule, code: int) -> None:
        return None

    def secret_of(self, account: str) -> str | None:
        return None

    @property
    def state(self) -> object:
        return None
