"""What a client expects of its members: the producers, consumers and admins that share it.

Names of topics and groups in these calls are those of the wire, with the namespace in front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyromq.protocol.bodies import ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo, ProducerData
    from pyromq.protocol.headers import CheckTransactionState
    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue


class Member(Protocol):
    """One who uses a client. An admin is no more than that."""

    @property
    def group(self) -> str:
        """Unique among the members of its kind; with or without the namespace."""
        ...

    def topics(self) -> Collection[str]:
        """The topics whose routes are to be kept fresh."""
        ...

    def route_changed(self, topic: str) -> None:
        """The route of a topic is not what it was. Must not block."""
        ...


@runtime_checkable
class ProducerMember(Member, Protocol):
    """A producer."""

    def heartbeat_data(self) -> ProducerData: ...

    def check_transaction(self, address: str, header: CheckTransactionState, message: MessageExt) -> None:
        """The broker at `address` asks how a transaction ended. Schedules the answer; must not block."""
        ...


@runtime_checkable
class ConsumerMember(Member, Protocol):
    """A consumer, pushing or pulling."""

    def heartbeat_data(self) -> ConsumerData: ...

    def wake_rebalance(self) -> None:
        """The members of the group may have changed. Must not block, and must not mind being called at any time."""
        ...

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Go on elsewhere. Schedules it; must not block."""
        ...

    def memory_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far this member is, whether committed or not."""
        ...

    def running_info(self, jstack: bool) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        """Give `message` to the handler, without any consequences."""
        ...
