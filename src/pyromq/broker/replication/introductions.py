"""Who is at the other end: masters and slaves of ours introduce themselves by request 906, over the port of clients.

The line of replication says nothing but offsets (docs/spec/ha.md 2). So a slave tells its master whose slave it is, and
which connection is its own, before it asks for the log there; the master answers who it is itself. Either tells the
other when it stops, and a slave what keeps it from following. RocketMQ's brokers skip this: 5.x answers 906 without
looking at what we add, 4.9 does not know the request.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import PyroMQError, RemoteProtocolError
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import ExchangeHAInfo, ExchangeHAInfoReply

if TYPE_CHECKING:
    from pyromq.remoting import Connection, Processor, RemotingClient

    from .follower import Follower
    from .master import Master
    from .protection import LineProtection

_GOODBYE = 1.0
_LONGEST = 1000  # characters of what a peer says that go into logs


class Identity(NamedTuple):
    """A broker. `instance` is another one in each process, so that two brokers with one id can be told apart."""

    cluster: str
    broker: str
    broker_id: int
    file_size: int
    address: str
    instance: str

    def says(
        self,
        *,
        ha_address: str | None = None,
        log_end: int | None = None,
        problem: str | None = None,
        leaving: bool | None = None,
        protection: str | None = None,
    ) -> Command:
        """906, about the connection that has `ha_address` at this end."""
        # Without a masterHaAddress: RocketMQ's brokers would take it for that of their own master.
        header = ExchangeHAInfo(
            cluster_name=self.cluster,
            broker_name=self.broker,
            broker_id=self.broker_id,
            broker_addr=self.address,
            file_size=self.file_size,
            instance=self.instance,
            ha_client_addr=ha_address,
            log_end=log_end,
            problem=None if problem is None else problem[:_LONGEST],
            leaving=leaving,
            ha_protection=protection,
        )
        return Command.request(RequestCode.EXCHANGE_BROKER_HA_INFO, header)


def objection(slave: Identity, cluster: str, broker: str, file_size: int) -> str | None:
    """Why a slave cannot follow a master with these settings. It is said on both sides."""
    if slave.cluster != cluster:
        return f"the slave belongs to cluster {slave.cluster}, the master to {cluster} (brokerClusterName)"
    if slave.broker != broker:
        return f"the slave belongs to {slave.broker}, but the master is {broker} (brokerName)"
    if slave.file_size != file_size:
        return (
            f"the slave keeps its log in files of {slave.file_size} bytes, "
            f"the master in files of {file_size} (mappedFileSizeCommitLog)"
        )
    return None


class Introductions:
    """Answers 906, and says goodbye. `ha_address` is where slaves find this broker, if it is a master."""

    def __init__(
        self,
        me: Identity,
        ha_address: str,
        client: RemotingClient,
        master: Master,
        follower: Follower | None,
        *,
        protection: LineProtection,
    ) -> None:
        self._protection = protection
        self._me = me
        self._ha_address = ha_address
        self._client = client
        self._master = master
        self._follower = follower

    def table(self) -> dict[int, Processor]:
        return {RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchanged}

    def exchanged(self, connection: Connection, request: Command) -> Command:
        header = request.header(ExchangeHAInfo)
        peer = _identity(header)
        if self._follower is not None:
            reply = self._as_slave(self._follower, header, peer)
        else:
            refusal = None if peer is None else self._heard(peer, header)
            # RocketMQ's slaves fail without the offset. 0 is that of a master which has not been flushed before.
            reply = self._reply(refusal, ha_address=self._ha_address, address=self._me.address, flushed=0)
        return request.reply(header=reply)

    def _as_slave(self, follower: Follower, header: ExchangeHAInfo, peer: Identity | None) -> ExchangeHAInfoReply:
        if peer is None:
            return ExchangeHAInfoReply()  # where a master of RocketMQ's is, its name server says as well
        if peer.broker_id != 0:
            return self._reply(f"{self._me.address} is a slave itself")
        if header.leaving and (peer.cluster, peer.broker) == (self._me.cluster, self._me.broker):
            follower.master_leaves()
        return self._reply(None)

    def _heard(self, slave: Identity, header: ExchangeHAInfo) -> str | None:
        """What a slave says; gives why it is refused."""
        at = header.ha_client_addr
        if header.leaving:
            self._master.leaves(at)
        elif header.problem is not None:
            self._master.stays_away(slave, at, _checked(header.problem))
        else:
            me = self._me
            wrong = objection(slave, me.cluster, me.broker, me.file_size)
            wrong = wrong or self._protection.objection(header.ha_protection)
            if wrong is None and header.log_end is not None:
                wrong = self._master.misplaced(header.log_end)
            return self._master.introduced(slave, None if at is None else _checked(at), wrong)
        return None

    def _reply(
        self,
        refusal: str | None,
        *,
        ha_address: str | None = None,
        address: str | None = None,
        flushed: int | None = None,
    ) -> ExchangeHAInfoReply:
        return ExchangeHAInfoReply(
            master_ha_address=ha_address,
            master_flush_offset=flushed,
            master_address=address,
            cluster_name=self._me.cluster,
            broker_name=self._me.broker,
            file_size=self._me.file_size,
            refusal=refusal,
        )

    async def goodbye(self) -> None:
        """Tell those at the other end that this broker stops. One that does not hear it notices by itself."""
        if self._follower is not None:
            await self._follower.goodbye()
            return
        slaves = {link.slave.address for link in self._master.links if link.slave is not None}
        await asyncio.gather(*(self._tell(address) for address in slaves))

    async def _tell(self, address: str) -> None:
        with contextlib.suppress(PyroMQError):
            await self._client.invoke(address, self._me.says(leaving=True), _GOODBYE)


def _identity(header: ExchangeHAInfo) -> Identity | None:
    """Who speaks; None if it is not a broker of ours."""
    if header.instance is None:
        return None
    return Identity(
        _checked(header.cluster_name),
        _checked(header.broker_name),
        _needed(header.broker_id),
        _needed(header.file_size),
        _checked(header.broker_addr),
        _checked(header.instance),
    )


def _checked(text: str | None) -> str:
    if text is None or len(text) > _LONGEST or not text.isprintable():
        raise RemoteProtocolError(f"a broker introduces itself with {text!r:.80}")
    return text


def _needed(number: int | None) -> int:
    if number is None or number < 0:
        raise RemoteProtocolError(f"a broker introduces itself with {number}")
    return number
