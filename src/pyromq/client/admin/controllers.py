"""`admin.controllers`: the controllers that decide who is master of a broker group (docs/spec/controller.md 2, 10).

Any controller says who leads; only the leader answers for groups. So each operation takes the addresses of one
controller or several of one group, and finds the leader itself, again if the lead changes meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pyromq.errors import BrokerError, ConnectFailed, PyroMQError, broker_error
from pyromq.protocol.bodies import BrokerReplicasInfo
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import CleanBrokerData, ElectMaster, ElectMasterReply, GetMetadataInfoReply

from .config_text import config_from, config_text
from .fan_out import fan_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyromq.protocol.bodies import ReplicasInfo
    from pyromq.protocol.command import Command
    from pyromq.protocol.header import Header

    from .fan_out import Answers
    from .requests import Requests

# A new leader is there after one to three seconds; how often, and how long apart, to look for it.
_LOOKS = 6
_PAUSE = 0.4
# Each answers this from memory; one that hangs must not keep the others' answers from being used.
_VIEW_WITHIN = 1.5
_NOT_LEADER = ResponseCode.CONTROLLER_NOT_LEADER


@dataclass(frozen=True, slots=True)
class ControllerView:
    """What one controller says of its group. `peers` are addresses by id; those of JRaft have no ids."""

    address: str
    group: str | None
    leader_id: str | None
    leader: str | None
    leads: bool
    peers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Elected:
    """The master after an election. `changed` is False if it was the master before."""

    broker_id: int | None
    address: str | None
    epoch: int | None
    set_epoch: int | None
    changed: bool = True


class ControllerAdmin:
    """Operations on controllers. `controllers` are addresses, of which one that works is enough."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def view(self, controller: str) -> ControllerView:
        """What this controller says of its group, whether it leads or not."""
        code = RequestCode.CONTROLLER_GET_METADATA_INFO
        reply = await self._requests.ask_controller(controller, code, at_most=_VIEW_WITHIN)
        return _view(controller, reply)

    async def views(self, controllers: Iterable[str]) -> Answers[ControllerView]:
        """The same of several, and of the peers that they name."""
        answers = await fan_out(controllers, self.view, "ask controllers")
        known = {*answers.results, *answers.failures}
        peers = {peer for each in answers.results.values() for peer in each.peers.values()} - known
        further = await fan_out(sorted(peers), self.view, "ask controllers")
        answers.results.update(further.results)
        answers.failures.update(further.failures)
        return answers

    async def leader(self, controllers: Sequence[str]) -> ControllerView:
        """The first answer that names a leader. Raises BrokerError (2007) if nobody does."""
        tasks = [asyncio.create_task(self._view_or_error(each)) for each in dict.fromkeys(controllers)]
        errors = []
        try:
            for done in asyncio.as_completed(tasks):
                found = await done
                if isinstance(found, PyroMQError):
                    errors.append(found)
                elif found.leader:
                    return found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if errors and len(errors) == len(tasks):
            raise errors[0]
        raise broker_error(_NOT_LEADER, "no controller leads at the moment", ";".join(controllers))

    async def replicas(self, controllers: Sequence[str], brokers: Iterable[str]) -> dict[str, ReplicasInfo]:
        """Groups by broker name: the master, and who is in sync. Names that no controller knows are left out."""
        names = sorted(set(brokers))
        if not names:
            return {}
        code, body = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, msgspec.json.encode(names)
        reply = await self._at_leader(controllers, code, body=body)
        return dict(BrokerReplicasInfo.decode(reply.body_bytes).replicas_info_table)

    async def elect(self, controllers: Sequence[str], cluster: str, broker: str, broker_id: int) -> Elected:
        """Make a broker the master of its group. Raises BrokerError: 2012 if it is not alive or not in sync."""
        header = ElectMaster(cluster, broker, broker_id, True, _now())
        try:
            reply = await self._at_leader(controllers, RequestCode.CONTROLLER_ELECT_MASTER, header)
        except BrokerError as exc:
            if exc.code != ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
                raise
            info = (await self.replicas(controllers, [broker]))[broker]
            return Elected(
                info.master_broker_id, info.master_address, info.master_epoch, info.sync_state_set_epoch, changed=False
            )
        won = reply.header(ElectMasterReply)
        return Elected(won.master_broker_id, won.master_address, won.master_epoch, won.sync_state_set_epoch)

    async def clean(
        self,
        controllers: Sequence[str],
        broker: str,
        ids: Sequence[int] = (),
        *,
        cluster: str | None = None,
        living: bool = False,
    ) -> None:
        """Forget stopped brokers of a group, or all of it. Raises BrokerError (2009) for one that lives.

        With `living` it is forgotten even while its brokers run: they lose their role and must be started afresh.
        Apache's controllers then forget the whole group, whatever `ids` says.
        """
        header = CleanBrokerData(broker, cluster, ";".join(map(str, ids)) or None, living, _now())
        await self._at_leader(controllers, RequestCode.CLEAN_BROKER_DATA, header)

    async def config(self, controllers: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of each controller, by its address."""

        async def ask(address: str) -> dict[str, str]:
            return config_from(await self._requests.ask_controller(address, RequestCode.GET_CONTROLLER_CONFIG), address)

        answers = await fan_out(controllers, ask, "controller config")
        answers.check(answers.results)
        return answers.results

    async def set_config(self, controllers: Iterable[str], changes: Mapping[str, str]) -> list[str]:
        """Change settings at each of these controllers; they do not tell each other. Returns the addresses."""
        body = config_text(changes)

        async def tell(address: str) -> None:
            await self._requests.ask_controller(address, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)

        return list((await fan_out(controllers, tell, f"set {', '.join(changes)}")).check())

    async def _at_leader(
        self, controllers: Sequence[str], code: int, header: Header | None = None, body: bytes | None = None
    ) -> Command:
        """Ask the leader, and look for it again while the lead changes."""
        for left in reversed(range(_LOOKS)):
            try:
                leader = (await self.leader(controllers)).leader or ""
                with _gone(leader):
                    return await self._requests.ask_controller(leader, code, header, body)
            except BrokerError as exc:
                if exc.code != _NOT_LEADER or not left:
                    raise
            await asyncio.sleep(_PAUSE)
        raise AssertionError("the last look returns or raises")

    async def _view_or_error(self, controller: str) -> ControllerView | PyroMQError:
        try:
            return await self.view(controller)
        except PyroMQError as exc:
            return exc


@contextlib.contextmanager
def _gone(leader: str) -> Iterator[None]:
    """A leader that cannot be reached leads no more, though others still name it."""
    try:
        yield
    except ConnectFailed as exc:
        raise broker_error(_NOT_LEADER, "leads, but cannot be reached", leader) from exc


def _view(address: str, reply: Command) -> ControllerView:
    said = reply.header(GetMetadataInfoReply)
    return ControllerView(
        address,
        said.group,
        said.controller_leader_id or None,
        said.controller_leader_address or None,
        said.is_leader,
        peers_of(said.peers or ""),
    )


def peers_of(text: str) -> dict[str, str]:
    """`n0:host:port;n1:host:port;` as addresses by id; JRaft's have none and are called by their addresses."""
    peers = {}
    for entry in filter(None, (each.strip() for each in text.split(";"))):
        first, _, rest = entry.partition(":")
        if rest.rpartition(":")[0]:
            peers[first] = rest
        else:
            peers[entry] = entry
    return peers


def _now() -> int:
    return int(time.time() * 1000)
