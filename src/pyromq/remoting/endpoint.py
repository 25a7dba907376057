"""What the connections of one server or client share: processors, listeners, hooks and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from pyromq.protocol.command import Command
from pyromq.protocol.frame import MAX_FRAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .connection import Connection
    from .folded_log import FoldedLog
    from .latencies import RequestLatencies
    from .request_rules import BodyLimit
    from .unfinished_frames import UnfinishedFrames

# A processor returns a Command to answer at once, an awaitable to answer later, or None to answer not at all or by
# calling `Connection.reply` later. It raises a BrokerError to answer with that error's code.
Processor = Callable[["Connection", Command], Command | Awaitable[Command | None] | None]

# How long a closing endpoint waits for its peers to read what was written.
_LINGER = 1.0


class CloseReason(Enum):
    """Why a connection ended."""

    PEER = "closed by the peer"
    LOCAL = "closed here"
    IDLE = "idle for too long"
    FAILED = "failed"


class ConnectionListener(Protocol):
    """Hears of connections, in order, before anything else happens to them."""

    def connected(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection, reason: CloseReason) -> None: ...


class Hook(Protocol):
    """Sees every request before it is sent or processed, and every reply once it exists; hooks run in order.

    On the server, an error raised by `before_request` becomes the answer. An error in `after_response` is logged and
    changes nothing. A request with an unknown code is refused without asking the hooks.
    """

    def before_request(self, peer: str, request: Command) -> None: ...

    def after_response(self, peer: str, request: Command, response: Command | None) -> None: ...


class Lateness(Protocol):
    """Refuses requests that waited too long before they were read.

    None is refused until `late_after`, by `time.monotonic()`; after that, `refusal` decides on each.
    """

    late_after: float

    def refusal(self, request: Command) -> Command | None: ...


class FastRequests(Protocol):
    """Serves the usual requests of a kind without making commands of them."""

    taken: int  # requests that the last call of `take` took

    def take(self, connection: Connection, data: bytes, at: int, most: int, max_header: int) -> int:
        """Take the requests at the front of `data` from `at` on that it knows; gives where the others begin.

        It takes no more than `most`, and none with a header over `max_header`. Those it leaves, because they are
        unusual or of another kind, go to their processors, and those behind them come here again: the order stays.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """What the connections of one server or client have in common."""

    processors: Mapping[int, Processor] = field(default_factory=dict)
    default: Processor | None = None
    hooks: Sequence[Hook] = ()
    listener: ConnectionListener | None = None
    lateness: Lateness | None = None
    fast: FastRequests | None = None
    async_permits: int = 65535
    oneway_permits: int = 65535
    high_water: int = 1 << 20
    low_water: int = 1 << 18
    max_unsent: int = 1 << 26
    max_frame: int = MAX_FRAME
    max_header: int = MAX_FRAME
    max_running_requests: int = 10000
    # How large the body of a request may be, by its code; None takes whatever fits into a frame.
    body_limit: Callable[[int], BodyLimit] | None = None
    # Counts a request that no processor gets, and raises a BrokerError if it is one too many.
    count_unserved: Callable[[Connection, Command], None] | None = None
    # A server's log of what peers do wrong; a client has few peers, and logs each time.
    faults: FoldedLog | None = None
    # Counts how long requests take; None if nobody wants to know.
    latencies: RequestLatencies | None = None
    # Shared by the endpoints whose connections are bounded together.
    unfinished: UnfinishedFrames | None = None
    # A server uses the header serialisation of each client.
    follow_peer: bool = False
    # A server leaves requests unread while the peer does not read its replies. A client always reads on: if both
    # sides stopped, each would wait for the other.
    holds_requests: bool = False
    # Until when, by the loop's clock, those that ask for much take short turns: others were there a moment ago.
    others_until: float = 0.0
    connections: set[Connection] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    calls: asyncio.Semaphore = field(init=False)
    oneways: asyncio.Semaphore = field(init=False)
    _apart: ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        # A single frame, however large, does not mean that the peer has stopped reading.
        self.max_unsent = max(self.max_unsent, self.high_water + 2 * self.max_frame)
        self.calls = asyncio.Semaphore(self.async_permits)
        self.oneways = asyncio.Semaphore(self.oneway_permits)

    @property
    def apart(self) -> ThreadPoolExecutor:
        """One thread for what would keep the loop busy. One: more would only take turns, and the loop with them."""
        if self._apart is None:
            self._apart = ThreadPoolExecutor(1, thread_name_prefix="large-bodies")
        return self._apart

    async def close_idle(self, seconds: float) -> None:
        """Until cancelled, close connections that were idle for `seconds` (up to a fifth more)."""
        while True:
            await asyncio.sleep(seconds / 10)
            for connection in tuple(self.connections):
                connection.close_if_idle(seconds)

    async def close(self) -> None:
        """End all connections and their tasks."""
        for connection in tuple(self.connections):
            connection.close()
        tasks = tuple(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._apart is not None:
            self._apart.shutdown(wait=False, cancel_futures=True)
        # A transport reports its end in a later turn of the loop, after trying to send the rest.
        ends = [connection.lost for connection in self.connections]
        if ends:
            _, late = await asyncio.wait(ends, timeout=_LINGER)
            if late:
                for connection in tuple(self.connections):
                    connection.abort()
                await asyncio.wait(late, timeout=_LINGER)
