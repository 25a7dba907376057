"""What a client expects of its members: the producers, consumers and admins that share it.

Topic and group names in these calls are those on the wire, with the namespace in front.
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
    """A user of a client. An admin is just that."""

    @property
    def group(self) -> str:
        """Unique among the members of its kind; with or without the namespace."""
        ...

    def topics(self) -> Collection[str]:
        """The topics whose routes must stay fresh."""
        ...

    def route_changed(self, topic: str) -> None:
        """The route of a topic changed. Must not block."""
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
        """The members of the group may have changed. Must not block, and may be called at any time."""
        ...

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Continue at other offsets. Schedules it; must not block."""
        ...

    def memory_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """This member's offsets, committed or not."""
        ...

    def running_info(self, jstack: bool) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        """Give `message` to the handler, without any consequences."""
        ...
