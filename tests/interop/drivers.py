"""Official clients of several languages that obey one set of commands.

Each driver is a small program of ours around a client of theirs: `java/Peer.java`, `go/peer.go`, `node/peer.js`. It is
started with the name server's address, says `ready`, and then takes one command per line, with `key=value` options:

    send topic body [tags keys delay size vip]     says  sent STATUS ID OFFSET-ID BROKER QUEUE OFFSET
         [property trace]                          a property of the user as NAME:VALUE, commas in keys, and a trace of
                                                   what becomes of it: Java only
    async, oneway, batch  topic count [tags]       the bodies are TOPIC-0, TOPIC-1, …
    ordered topic orders count                     bodies a-0, b-0, …, a-1, b-1, …; a letter stays in its queue
    push name group topic [tags orderly broadcast fail max]   a consumer starts; each message gives
                                                   got NAME TOPIC QUEUE OFFSET TIMES TAGS BODY
    queues name                                    says  queues BROKER:QUEUE …
    leave name                                     that consumer ends
    lite name group topic queue count              reads one queue with the lite pull consumer, for a while, and
         [offset seconds]                          commits

Java and Go, but not Node, know these:

    request topic body                             waits for an answer and says  reply BODY
    transaction group topic body state [check]     a half message and what becomes of it, at once and when the broker
                                                   asks, which says  checked GROUP ID TRANSACTION-ID
    push … [reply]                                 answers say re:BODY

The Java client alone knows these, and starts a consumer with  client NAME CLIENT-ID:

    send … [shard compression]                     to the queue of a key's hash; LZ4, ZSTD or ZLIB with 5.5.0
    send … [timer]                                 in so many milliseconds, says  handle ID HANDLE : 5.5.0 only
    recall topic handle                            takes that back and says  recalled ID : 5.5.0 only
    id id                                          what it reads out of a message's id:  id MILLISECONDS PROCESS
    push … [strategy sql show trace]               for strategies see java/Strategies.java; blanks in SQL are written +;
                                                   the property to show gives  shown NAME VALUE
    push … [pop]                                   lets the broker assign queues, and pops for so many milliseconds if
                                                   the group's mode says so: 5.5.0 only

`fail=2` makes a consumer fail the first two times it sees a message, `max=2` limits how often it is tried again. The
end of a command is `done N` or `failed N REASON`, N counting the commands.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tests.interop import apache, toolchains
from tests.interop.process import PeerFailed, Process, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_SECONDS = 30.0
COMMAND_SECONDS = 40.0
PEERS = ("java-5.5.0", "java-4.9.8", "go-2.1.2", "node-3.12.0")


@dataclass(frozen=True, slots=True)
class Sent:
    """What a producer was told."""

    status: str
    message_id: str
    offset_id: str
    broker: str
    queue: int
    offset: int


@dataclass(frozen=True, slots=True)
class Got:
    """What a consumer received."""

    consumer: str
    topic: str
    queue: int
    offset: int
    times: int
    tags: str
    body: str


class Driver:
    """A running client, one of `PEERS`. Options of commands are keywords: `driver.do("send", topic="t", body="b")`.

    A Java client asks for routes every `poll` milliseconds; others ask when they like. With an `account`, access key
    and secret key, it signs its requests.
    """

    def __init__(
        self, peer: str, home: Path, namesrv: str, *, poll: int = 30_000, account: tuple[str, str] | None = None
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        language, _, version = peer.partition("-")
        if language == "java":
            flags = (*apache.SMALL_CLIENT, apache.silent(home), f"-Dpeer.poll={poll}")
            command = [*apache.java(version, home, flags), "Peer"]
        else:
            command = toolchains.COMMANDS[language]()
        signing = {} if account is None else {"PEER_ACCESS_KEY": account[0], "PEER_SECRET_KEY": account[1]}
        self.peer = peer
        self._commands = 0
        self._process = Process(
            peer,
            [*command, namesrv],
            log=home / f"{peer}.out",
            env=apache.environment(home) | {"HOME": str(home)} | signing,
            talk=True,
        )

    def __enter__(self) -> Self:
        self._process.wait_for("ready", START_SECONDS)
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()

    def do(self, command: str, **options: object) -> list[str]:
        """Have it done; the lines it said meanwhile. PeerFailed with the reason if it could not be done."""
        self._commands += 1
        number = self._commands
        before = len(self._process.output)
        words = [command, *(f"{key}={value}" for key, value in options.items() if value is not False)]
        self._process.say(" ".join(words))

        def ending() -> str | None:
            for line in self._process.output[before:].splitlines():
                if line == f"done {number}" or line.startswith(f"failed {number} "):
                    return line
            return None

        wait_until(lambda: ending() is not None, COMMAND_SECONDS, f"{self.peer} ends: {' '.join(words)}")
        end = ending()
        assert end is not None
        if end.startswith("failed"):
            raise PeerFailed(f"{self.peer}: {' '.join(words)}: {end}")
        return self._process.output[before:].splitlines()

    def send(self, command: str = "send", **options: object) -> list[Sent]:
        """Send and return what the producer was told of each message, in the order of the answers."""
        lines = [line.split() for line in self.do(command, **options) if line.startswith("sent ")]
        return [Sent(w[1], w[2], w[3], w[4], int(w[5]), int(w[6])) for w in lines]

    def received(self, consumer: str) -> list[Got]:
        """Everything that a consumer got so far."""
        lines = [line.split(" ", 6) for line in self._process.lines("got")]
        return [
            Got(words[0], words[1], int(words[2]), int(words[3]), int(words[4]), words[5], words[6])
            for words in lines
            if words[0] == consumer
        ]

    def bodies(self, consumer: str) -> list[str]:
        return [got.body for got in self.received(consumer)]

    def said(self, word: str, name: str) -> list[str]:
        """What it said so far of `name` on lines that begin with `word`."""
        return [rest for first, _, rest in (line.partition(" ") for line in self._process.lines(word)) if first == name]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It stands still (SIGSTOP): its connections stay, but it neither reads nor answers."""
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def client_id(self, consumer: str) -> str:
        return self.said("client", consumer)[-1]

    def queues(self, consumer: str) -> set[str]:
        """The queues that a push consumer has."""
        [line] = [line for line in self.do("queues", name=consumer) if line.startswith("queues")]
        return set(line.split()[1:])

    def wait_for_bodies(self, consumer: str, bodies: set[str], seconds: float) -> float:
        """Wait until a consumer has all of them."""
        what = f"{self.peer} {consumer} got {len(bodies)} messages"
        try:
            return wait_until(lambda: bodies <= set(self.bodies(consumer)), seconds, what)
        except PeerFailed as exc:
            missing = sorted(bodies - set(self.bodies(consumer)))
            raise PeerFailed(f"{exc}; missing {len(missing)}: {missing[:5]}\n{self._process.tail(15)}") from None
