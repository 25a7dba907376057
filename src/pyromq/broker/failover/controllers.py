"""The controllers of a broker: where they are, which can be reached, and which one leads (docs/spec/controller.md 4.3).

Only the leader decides, so every question goes to it. The others get heartbeats too: whoever leads next has to know
which brokers are alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyromq.errors import ConfigError, ConnectFailed, ConnectionLost, PyroMQError, RequestTimeout, broker_error
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import GetMetadataInfoReply
from pyromq.remoting.addresses import join_address, split_address, split_addresses

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.remoting import Connection, RemotingClient

    from .config import FailoverConfig

logger = logging.getLogger(__name__)

_ASK = 3.0
_REACH = 3.0
_LOOK_UP = 120.0
# Seconds to wait for the leader's own word once another controller has named it.
_GRACE = 0.3
_LEAVE = 1.0


class Controllers:
    """All controllers of a broker behind one `ask`. `run` keeps the list, the connections and the leader up to date.

    There is one connection per controller, which every part of the broker shares: a controller takes the end of a
    broker's connection for the end of the broker. So one late answer closes nothing; only a controller that has said
    nothing at all for a whole heartbeat time-out is given up. A connection on which nothing ever came is given up
    sooner: whoever took it may have lost the controller just then, and would stay silent, while a new one works.
    """

    def __init__(self, client: RemotingClient, config: Callable[[], FailoverConfig]) -> None:
        self._client = client
        self._config = config
        self.addresses: tuple[str, ...] = ()
        self.leader: str | None = None
        # Why some controllers cannot be reached, by address.
        self.unreachable: dict[str, str] = {}
        # Called when the connection to the leader ended, or another one was found to lead without being needed.
        self.leader_changed: Callable[[], None] = lambda: None
        self._line: Connection | None = None
        self._in_doubt = False
        self._finding = asyncio.Lock()
        self._left = False
        # For connections on which an answer is overdue: how much had been read, and since when.
        self._silence: WeakKeyDictionary[Connection, tuple[int, float]] = WeakKeyDictionary()

    # Asking

    async def ask(self, command: Command, timeout: float = _ASK) -> Command:
        """Ask the leader; returns its reply, whatever its code. Looks for another leader if this one says it is none.

        Raises ConnectFailed if nothing was sent, ConnectionLost or RequestTimeout if it may have been, and a
        BrokerError (2007) if no controller leads.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        for last in (False, True):
            line = await self.line(deadline - loop.time())
            reply = await self.ask_on(line, command, deadline - loop.time())
            if reply.code != ResponseCode.CONTROLLER_NOT_LEADER:
                break
            if last:
                raise broker_error(reply.code, reply.remark, line.peer)
        return reply

    async def line(self, timeout: float = _ASK) -> Connection:
        """The connection to the leader. ConnectFailed if there is none."""
        if self._left:
            raise ConnectFailed("controller", "this broker has left its controllers")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        # A leader that is slow to answer may have been replaced; but with nobody else to ask there is no point.
        if self.leader is None or (self._in_doubt and len(self.addresses) > 1):
            await self._find_leader(deadline)
        leader = self.leader
        assert leader is not None
        try:
            line = await self._client.connection(leader, max(0.0, deadline - loop.time()))
        except PyroMQError as exc:
            self._forget_leader(leader)
            raise ConnectFailed(leader, f"the leading controller cannot be reached: {_reason(exc)}") from exc
        if line is not self._line:
            self._line = line
            line.lost.add_done_callback(lambda _: self._lost(leader, line))
        return line

    async def ask_on(self, line: Connection, command: Command, timeout: float = _ASK) -> Command:
        """Ask the controller at the other end of `line`. Errors as in `ask`."""
        loop = asyncio.get_running_loop()
        received, sent = line.received, loop.time()
        try:
            reply = await line.invoke(command, timeout)
        except RequestTimeout:
            self._unanswered(line, received, sent)
            raise
        address = str(line.context)
        if reply.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._forget_leader(address)
        elif reply.code == ResponseCode.GO_AWAY:
            self._client.leave(address, line)
            self._forget_leader(address)
            raise ConnectionLost(line.peer, "the controller is shutting down")
        return reply

    async def tell_others(self, make: Callable[[], Command], timeout: float) -> None:
        """Send a one-way request to every controller that can be reached, but for the leader."""
        lines = [
            line
            for address in self.addresses
            if address != self.leader and (line := self._client.open_connection(address)) is not None
        ]
        # One that does not read, or just went, is found out by its silence.
        await asyncio.gather(*(line.oneway(make(), timeout) for line in lines), return_exceptions=True)

    # Keeping up to date

    async def run(self) -> None:
        """Look for the controllers and their leader until cancelled. Nothing is asked after that."""
        try:
            await self.refresh()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_list(), name="list controllers")
                tasks.create_task(self._keep_connected(), name="reach controllers")
                tasks.create_task(self._keep_leader(), name="follow the leading controller")
        finally:
            self._left = True

    async def refresh(self) -> None:
        """Read the list of controllers anew. If that fails, keep the known ones."""
        try:
            addresses = await self._listed()
        except ConfigError as exc:
            logger.warning("cannot look up controllers: %s; keeping %s", exc, ";".join(self.addresses) or "none")
            return
        if addresses == self.addresses:
            return
        gone = [address for address in self.addresses if address not in addresses]
        self.addresses = addresses
        logger.info("controllers: %s", ";".join(addresses) or "none")
        for address in gone:
            self.unreachable.pop(address, None)
            if address != self.leader:
                self._client.close_connection(address)

    async def leave(self) -> None:
        """Close all connections: the controllers see at once that this broker is gone. Nothing is asked after this."""
        self._left = True
        self.leader = None
        ends = []
        for address in {*self.addresses, *([str(self._line.context)] if self._line is not None else [])}:
            line = self._client.open_connection(address)
            if line is not None:
                ends.append(line.lost)
            self._client.close_connection(address)
        if ends:
            await asyncio.wait(ends, timeout=_LEAVE)

    async def _keep_list(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_UP)
            await self.refresh()

    async def _keep_connected(self) -> None:
        while True:
            await asyncio.gather(*(self._reach(address) for address in self.addresses))
            await asyncio.sleep(_REACH)

    async def _keep_leader(self) -> None:
        while True:
            await asyncio.sleep(self._config().leader_interval / 1000)
            await self._survey()

    async def _reach(self, address: str) -> None:
        if self._client.open_connection(address) is not None and address not in self.unreachable:
            return
        try:
            await self._client.connection(address, _REACH)
            if address in self.unreachable:
                # It may take connections and do nothing else.
                await self._who_leads(address, asyncio.get_running_loop().time() + _ASK)
        except PyroMQError as exc:
            self._note_unreachable(address, exc)
        else:
            self._note_reached(address)

    async def _listed(self) -> tuple[str, ...]:
        config = self._config()
        try:
            addresses = split_addresses(config.controllers)
        except ValueError as exc:
            raise ConfigError(f"controllerAddr: {exc}") from exc
        if not config.look_up or not addresses:
            return tuple(addresses)
        host, port = split_address(addresses[0])
        try:
            async with asyncio.timeout(_ASK):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError:
            raise ConfigError(f"controllerAddr: the name {host} was not resolved within {_ASK:g} s") from None
        except OSError as exc:
            raise ConfigError(f"controllerAddr: the name {host} cannot be resolved: {exc.strerror or exc}") from exc
        return tuple(dict.fromkeys(join_address(str(entry[4][0]), port) for entry in found))

    # The leader

    async def _find_leader(self, deadline: float) -> None:
        """Ask all controllers at once who leads, until one knows."""
        async with self._finding:
            if self.leader is not None and not self._in_doubt:
                return  # somebody else has just found it
            if not self.addresses:
                await self.refresh()
            if not self.addresses:
                raise ConnectFailed("controller", "no address; set controllerAddr")
            self._follow(await self._asked_for_leader(deadline))

    async def _survey(self) -> None:
        """Ask all controllers who leads, and wait for each: so those that are silent are noticed, too."""
        before = self.leader
        # Without a leader, whoever needs one looks for it.
        with contextlib.suppress(PyroMQError):
            leader = await self._asked_for_leader(asyncio.get_running_loop().time() + _ASK, thorough=True)
            if self.leader == before:
                self._follow(leader)
                if leader != before:
                    self.leader_changed()

    def _follow(self, leader: str) -> None:
        self._in_doubt = False
        if leader != self.leader:
            logger.info("controller %s leads", leader)
            self.leader = leader

    async def _asked_for_leader(self, deadline: float, *, thorough: bool = False) -> str:
        loop = asyncio.get_running_loop()
        asking = {
            asyncio.create_task(self._who_leads(address, deadline), name=f"ask {address} who leads"): address
            for address in self.addresses
        }
        claiming: list[str] = []
        named: list[str] = []
        failures: list[str] = []
        pending = set(asking)
        until = deadline
        try:
            while pending and (thorough or not claiming):
                done, pending = await asyncio.wait(
                    pending, timeout=max(0.0, until - loop.time()), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                for task in done:
                    address = asking[task]
                    try:
                        header = task.result()
                    except PyroMQError as exc:
                        self._note_unreachable(address, exc)
                        failures.append(f"{address}: {_reason(exc)}")
                        continue
                    self._note_reached(address)
                    if not header.controller_leader_address:
                        failures.append(f"{address} knows no leader")
                    elif header.is_leader:
                        # By the address that we know it by: the one it has among controllers may be another.
                        claiming.append(address)
                    else:
                        named.append(header.controller_leader_address)
                        if not thorough:
                            until = min(until, loop.time() + _GRACE)
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        if self.leader in claiming:
            return self.leader
        if claiming or named:
            return (claiming or named)[0]
        silent = [f"{asking[task]}: no answer" for task in pending]
        raise ConnectFailed("controller", "none leads: " + "; ".join(failures + silent))

    async def _who_leads(self, address: str, deadline: float) -> GetMetadataInfoReply:
        loop = asyncio.get_running_loop()
        line = await self._client.connection(address, max(0.0, deadline - loop.time()))
        request = Command.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        reply = await self.ask_on(line, request, max(0.0, deadline - loop.time()))
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise ConnectFailed(address, "not a controller; is it the port of a name server?")
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark)
        return reply.header(GetMetadataInfoReply)

    def _forget_leader(self, address: str) -> None:
        if self.leader == address:
            self.leader = None

    def _lost(self, address: str, line: Connection) -> None:
        if line is self._line:
            self._line = None
            if not self._left:
                logger.warning("the connection to controller %s, which leads, ended", address)
                self._forget_leader(address)
                self.leader_changed()

    def _unanswered(self, line: Connection, received: int, sent: float) -> None:
        if str(line.context) == self.leader:
            self._in_doubt = True
        if line.received != received:
            return
        # Since when nothing has come: this question, or an earlier one, may have been the first without an answer.
        before, since = self._silence.get(line, (received, sent))
        since = since if before == received else sent
        self._silence[line] = (received, since)
        silent = asyncio.get_running_loop().time() - since
        if silent >= self._config().heartbeat_timeout / 1000 or not received:
            self._client.give_up_if_silent(line, received, silent)

    # Who can be reached

    def _note_reached(self, address: str) -> None:
        if self.unreachable.pop(address, None) is not None:
            logger.info("controller %s can be reached again", address)

    def _note_unreachable(self, address: str, exc: PyroMQError) -> None:
        if address not in self.unreachable:
            logger.warning("controller %s: %s; trying again every %g s", address, _reason(exc), _REACH)
        self.unreachable[address] = _reason(exc)


def _reason(exc: PyroMQError) -> str:
    """What is wrong, without the address that stands before it anyway."""
    return exc.reason if isinstance(exc, ConnectionLost) else str(exc)
