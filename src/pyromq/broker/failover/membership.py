"""A broker as a member of its group: it joins, beats, and learns from its controllers who is master.

Everything that a controller says about roles (1002, 1003, 1004, 1008) ends in one place, `_take`, where the larger
epoch wins. docs/spec/controller.md 4.2 to 4.4, 4.7.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
import time
from typing import TYPE_CHECKING

from pyromq.errors import BrokerError, PyroMQError, RemoteProtocolError, StateError, broker_error
from pyromq.protocol.bodies import ElectMasterResponseBody, SyncStateSet
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    AlterSyncStateSet,
    ApplyBrokerId,
    BrokerHeartbeat,
    ControllerRegisterBroker,
    ControllerRegisterBrokerReply,
    ElectMaster,
    ElectMasterReply,
    GetNextBrokerId,
    GetNextBrokerIdReply,
    GetReplicaInfo,
    GetReplicaInfoReply,
    NotifyBrokerRoleChanged,
)

from .config import FailoverConfig
from .controllers import Controllers
from .doubt import LACKS
from .identity import Claim
from .lease import Lease, since_boot
from .role import InSyncSet, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from pyromq.remoting import Connection, Processor, RemotingClient

    from ..config import LiveConfig
    from .identity import IdentityFiles
    from .role import Standing

logger = logging.getLogger(__name__)

# The first attempts to join follow each other soon, but not those of all brokers at once.
_FIRST_ATTEMPTS = 5
_SOON = 1.0
_LATER = 5.0

_WITHOUT_LEASE = 1.0  # the longest pause between two questions of a master that has no lease
_WITHOUT_MASTER = 1.0  # and between two of a broker whose group has no master
_REGISTERED_AGAIN = 2.0
_FIRST_RETRY = 0.05
_REMINDER = 60.0
_REFUSED_IDS = 16


class NotYet(PyroMQError):
    """Why a broker has no role yet."""


class Membership:
    """One broker among its controllers. `run` joins the group and then stays in touch, whatever fails on the way.

    `role_changed` is told each new role, `in_sync_changed` the in-sync set that the controllers have recorded for this
    master; both are called on the event loop and must not wait. `standing` says how far this broker's log is.

    `is_intact` says that the log lacks nothing that this broker ever acknowledged: its last stop was a clean one. If
    not, the end of the log may be gone while slaves still have it. Then a controller that has not noticed the restart,
    and still counts on this master, is made to choose again: the new master is the one with the longest log.

    While `is_doubtful` the log may lack what this broker acknowledged (`doubt`). Heartbeats say so, and our controllers
    elect accordingly. Apache's do not know what it means: as long as another broker of the in-sync set may have more,
    this one sends them no heartbeat and does not ask for a master, so that they do not elect it.

    `monotonic` gives seconds, and must go on counting while the machine sleeps.
    """

    def __init__(
        self,
        client: RemotingClient,
        live: LiveConfig,
        identity: IdentityFiles,
        standing: Callable[[], Standing],
        *,
        address: str,
        is_intact: bool = False,
        monotonic: Callable[[], float] = since_boot,
    ) -> None:
        self._live = live
        self._identity = identity
        self._standing = standing
        self._address = address
        self._is_intact = is_intact
        self._monotonic = monotonic
        self.broker_id: int | None = None
        self.role: Role | None = None
        self.lease = Lease(enabled=live.settings[FailoverConfig].lease, clock=monotonic)
        self.is_doubtful = False
        # What controllers say to that: whether they know what it means, and who else is in the in-sync set.
        self._doubt_is_heard = False
        self._others_in_sync: frozenset[int] = frozenset()
        # A role as master of this epoch or an earlier one belongs to a former life; None until that is known.
        self._former_epoch: int | None = None
        # Where the doubt is kept, for texts.
        self.doubt_path: Path | None = None
        # What operators should know; None while all is well.
        self.problem: str | None = "not connected to a controller yet"
        self.role_changed: Callable[[Role], None] = lambda role: None
        self.in_sync_changed: Callable[[InSyncSet], None] = lambda in_sync: None
        self.controllers = Controllers(client, lambda: live.settings[FailoverConfig])
        self.controllers.leader_changed = self._poll_soon
        self._has_role = asyncio.Event()
        self._hurry = asyncio.Event()
        self._poll_at = 0.0
        self._logged: dict[str, float] = {}
        self._refused_ids: set[int] = set()

    @property
    def is_master(self) -> bool:
        """Whether the last role says so. Before a master acknowledges anything it asks its lease, too."""
        return self.role is not None and self.role.master_id == self.broker_id

    def processors(self) -> Mapping[int, Processor]:
        """What controllers ask of brokers."""
        return {RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._notified}

    async def run(self) -> None:
        """Join, then keep the role up to date until cancelled. Nothing is sent after that."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.controllers.run(), name="keep in touch with controllers")
            await self._join()
            tasks.create_task(self._beat_others(), name="beat")
            await self._keep_role()

    async def leave(self) -> None:
        """Let the controllers see that this broker is gone, so that another becomes master at once. After `run`."""
        self.lease.void("this broker is stopping")
        await self.controllers.leave()

    async def hand_over(self) -> bool:
        """Let another broker be master that has every acknowledged message. Returns whether this one is a slave now."""
        role = self.role
        if role is None or not self.is_master or not self.lease.is_valid():
            return False
        for broker_id in sorted(role.in_sync.members - {role.master_id}):
            try:
                await self._elect(broker_id)
            except (OSError, PyroMQError) as exc:
                logger.warning("not handed over to broker %d: %s", broker_id, exc)
            if not self.is_master:
                return True
        return False

    async def alter_in_sync(self, members: Collection[int]) -> InSyncSet:
        """Have the controller record another in-sync set. It is taken like any other, and returned.

        `members` belongs to the set that is in `role` now: the controller refuses it if that has changed. Raises a
        BrokerError if it does; after any other PyroMQError the set may have been recorded, and the next poll tells.
        """
        role = self.role
        if role is None or not self.is_master or self.broker_id is None:
            raise StateError("only a master changes the in-sync set")
        header = AlterSyncStateSet(
            broker_name=self._live.config.broker_name,
            master_broker_id=self.broker_id,
            master_epoch=role.epoch,
            invoke_time=_now(),
        )
        wanted = SyncStateSet(sync_state_set=sorted(members), sync_state_set_epoch=role.in_sync.epoch)
        request = Command.request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, wanted.encode())
        reply = await self.controllers.ask(request)
        if reply.code != ResponseCode.SUCCESS:
            # Whatever this broker got wrong, the controller knows it right.
            self._poll_soon()
            raise broker_error(reply.code, reply.remark)
        taken = _in_sync(SyncStateSet.decode(reply.body_bytes))
        if self.role is None or self.role.epoch != role.epoch:
            raise StateError(f"epoch {role.epoch} ended while the in-sync set changed")
        self._take(dataclasses.replace(role, in_sync=taken))
        return taken

    def end_doubt(self) -> None:
        """This broker lacks nothing any more. The controllers hear it at once."""
        if self.is_doubtful:
            self.is_doubtful = False
            self._poll_soon()

    # Joining

    async def _join(self) -> None:
        attempts = 0
        while self.role is None:
            try:
                await self._try_to_join()
            except (OSError, PyroMQError) as exc:
                self._note(str(exc))
            attempts += 1
            pause = random.uniform(0, _SOON) if attempts < _FIRST_ATTEMPTS else random.uniform(_LATER / 2, _LATER)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wait_for_role()
        self.problem = None

    async def _wait_for_role(self) -> None:
        """A broker in doubt beats meanwhile: once all others of the in-sync set are there too, it may be elected."""
        while self.is_doubtful and self._doubt_is_heard and not self._has_role.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.heartbeat_interval / 1000):
                    await self._has_role.wait()
            with contextlib.suppress(OSError, PyroMQError):
                await self._beat(await self.controllers.line())
                await self._beat_others_once()
        await self._has_role.wait()

    async def _try_to_join(self) -> None:
        if self.broker_id is None:
            await self.controllers.line()  # nobody needs an id while no controller is there
            self.broker_id = await self._identify()
            logger.info("broker id %d of group %s", self.broker_id, self._live.config.broker_name)
        if self.is_doubtful:
            # Before anything that this broker says could be taken for a word of its former life.
            with contextlib.suppress(_UnknownGroup):
                await self._say_doubt()
        refusal = await self._register()
        if self.role is not None:
            return
        if self.is_doubtful or (not self._is_intact and self._standing().epoch >= 0):
            await self._end_former_life()
        if refusal is not None:
            raise NotYet(refusal)
        if self._config.learner:
            raise NotYet("the group has no master, and a learner cannot become one")
        if self._holds_back:
            raise NotYet(self._why_doubtful())
        await self._beat(await self.controllers.line())
        await self._beat_others_once()
        await self._elect()

    async def _identify(self) -> int:
        """This broker's id: the one it has, or a new one."""
        files = self._identity
        broker_id = await asyncio.to_thread(files.read)
        if broker_id is not None:
            return broker_id
        claim = await asyncio.to_thread(files.read_claim)
        if claim is None:
            claim = Claim(await self._next_id(), f"{self._address};{_now()}")
            await asyncio.to_thread(files.keep_claim, claim)
        header = ApplyBrokerId(
            cluster_name=self._live.config.cluster_name,
            broker_name=self._live.config.broker_name,
            applied_broker_id=claim.broker_id,
            register_check_code=claim.check_code,
        )
        reply = await self.controllers.ask(Command.request(RequestCode.CONTROLLER_APPLY_BROKER_ID, header))
        if reply.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            # Another broker has it. After any other error this one may have it, and asks again.
            self._refused_ids.add(claim.broker_id)
            await asyncio.to_thread(files.drop_claim)
        _check(reply)
        await asyncio.to_thread(files.keep, claim.broker_id)
        return claim.broker_id

    async def _next_id(self) -> int:
        config = self._live.config
        header = GetNextBrokerId(cluster_name=config.cluster_name, broker_name=config.broker_name)
        reply = await self.controllers.ask(Command.request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header))
        _check(reply)
        broker_id = reply.header(GetNextBrokerIdReply).next_broker_id
        if broker_id < 1:
            raise RemoteProtocolError(f"the controller offers {broker_id} as broker id")
        # RocketMQ's controller may offer an id again and again although a broker has it.
        if len(self._refused_ids) > _REFUSED_IDS:
            self._refused_ids.clear()
        while broker_id in self._refused_ids:
            broker_id += 1
        return broker_id

    async def _register(self) -> str | None:
        """1003: this broker is there, at this address. Takes the role if the group has a live master.

        Returns why a role was not taken.
        """
        assert self.broker_id is not None
        config = self._live.config
        header = ControllerRegisterBroker(
            cluster_name=config.cluster_name,
            broker_name=config.broker_name,
            broker_id=self.broker_id,
            broker_address=self._address,
            invoke_time=_now(),
        )
        reply = await self.controllers.ask(Command.request(RequestCode.CONTROLLER_REGISTER_BROKER, header))
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            raise NotYet(
                f"the controllers do not know broker {self.broker_id} of group {config.broker_name} "
                f"({reply.remark or 'no reason given'}); if somebody removed it on purpose, stop this broker, move "
                f"{self._identity.path} away and start it again to join as a new member"
            )
        _check(reply)
        role = _role(reply.header(ControllerRegisterBrokerReply), reply)
        return None if role is None else self._take(role)

    async def _say_doubt(self) -> None:
        """Let the leader know, and learn which epoch it had by then: later elections take the doubt into account."""
        line = await self.controllers.line()
        said, _ = await self._replica_info(line)
        if self._former_epoch is not None:
            return
        if self._doubt_is_heard:
            await self._beat(line)
            said, _ = await self._replica_info(line)
        self._former_epoch = max(said.master_epoch, self._standing().epoch)

    async def _end_former_life(self) -> None:
        """See that the controller does not count on the master that this broker was before it crashed."""
        line = await self.controllers.line()
        said, _ = await self._replica_info(line)
        known = self._standing().epoch
        if said.master_epoch < known:
            raise NotYet(self._why_behind(said.master_epoch))
        if said.master_broker_id != self.broker_id or not self._is_of_former_life(said.master_epoch):
            return
        # A heartbeat that counts for a moment only, and the end of its connection: either lets the controller choose.
        _check(await self.controllers.ask_on(line, self._heartbeat(1), self._config.heartbeat_patience / 1000))
        line.close()
        epoch = said.master_epoch
        raise NotYet(
            f"this broker was master of epoch {epoch} before it crashed; waiting until the controller has chosen anew"
        )

    def _is_of_former_life(self, epoch: int) -> bool:
        """Whether a master of this epoch, which this broker is said to be, was it before it crashed."""
        if self._is_intact and not self.is_doubtful:
            return False
        former = self._former_epoch if self.is_doubtful else self._standing().epoch
        return former is None or epoch <= former

    async def _elect(self, chosen: int | None = None) -> None:
        """1002: see that the group has a master; the `chosen` broker, if that can be it."""
        assert self.broker_id is not None
        config = self._live.config
        header = ElectMaster(
            cluster_name=config.cluster_name,
            broker_name=config.broker_name,
            broker_id=self.broker_id if chosen is None else chosen,
            designate_elect=chosen is not None,
            invoke_time=_now(),
        )
        reply = await self.controllers.ask(Command.request(RequestCode.CONTROLLER_ELECT_MASTER, header))
        if reply.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED:
            if self.is_doubtful and self._others_in_sync and chosen is None:
                raise NotYet(self._why_doubtful())
            raise NotYet(
                f"group {config.broker_name} has no master: none of its brokers that have every acknowledged message "
                "is alive; start one of them"
            )
        if reply.code != ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
            _check(reply)
        said = reply.header(ElectMasterReply)
        body = ElectMasterResponseBody.decode(reply.body_bytes)
        if said.master_broker_id is None or not said.master_address or said.master_epoch is None:
            raise RemoteProtocolError("the controller has elected a master, but does not say which")
        in_sync = InSyncSet(frozenset(body.sync_state_set), said.sync_state_set_epoch or 0)
        refusal = self._take(Role(said.master_epoch, said.master_broker_id, said.master_address, in_sync))
        if refusal is not None:
            raise NotYet(refusal)

    # Staying in touch

    async def _beat_others(self) -> None:
        while True:
            await self._beat_others_once()
            await asyncio.sleep(self._config.heartbeat_interval / 1000)

    async def _beat_others_once(self) -> None:
        if not self._holds_back:
            await self.controllers.tell_others(self._heartbeat, self._config.heartbeat_patience / 1000)

    async def _keep_role(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            self._hurry.clear()
            try:
                problem = await self._round()
            except (OSError, PyroMQError) as exc:
                failures += 1
                self._poll_at = 0.0
                self._note(self._why_without(str(exc)))
            else:
                failures = 0
                if problem is None:
                    self._all_is_well()
                else:
                    self._note(problem)
            pause = self._config.heartbeat_interval / 1000
            if self.is_master and not self.lease.is_valid():
                pause = min(pause, _WITHOUT_LEASE)
            if failures:
                # Not woken by the next loss: a controller that hangs up at once would keep us busy.
                await asyncio.sleep(min(pause, _FIRST_RETRY * 2 ** min(failures, 10)))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(began + pause):
                    await self._hurry.wait()

    async def _round(self) -> str | None:
        """A heartbeat to the leader, and the question who is master if it is time. Returns what is wrong, if anything.

        A master asks every time: the answer renews its lease from the moment when the heartbeat was sent.
        """
        line = await self.controllers.line()
        sent = self._monotonic()
        timeout = self._config.heartbeat_timeout
        await self._beat(line, timeout)
        loop = asyncio.get_running_loop()
        if loop.time() < self._poll_at:
            return self.problem
        self._poll_at = 0.0 if self.is_master else loop.time() + self._config.poll_interval / 1000
        try:
            return await self._poll(line, sent, timeout / 1000)
        except (BrokerError, NotYet) as exc:
            # The controller is there; what it says will not change within milliseconds.
            return str(exc)

    async def _beat(self, line: Connection, timeout: int | None = None) -> None:
        if self._holds_back:
            return
        reply = await self.controllers.ask_on(line, self._heartbeat(timeout), self._config.heartbeat_patience / 1000)
        _check(reply)

    async def _poll(self, line: Connection, sent: float, timeout: float) -> str | None:
        """1004 on the connection that a heartbeat was just sent on."""
        loop = asyncio.get_running_loop()
        try:
            said, in_sync = await self._replica_info(line)
        except _UnknownGroup:
            self._poll_at = loop.time() + _REGISTERED_AGAIN
            return await self._register()
        own = self.role
        assert own is not None
        if said.master_broker_id is None or not said.master_address:
            self._poll_at = loop.time() + _WITHOUT_MASTER
            if said.master_epoch > own.epoch:
                self.lease.void(f"the group has no master since epoch {said.master_epoch}")
                if self._config.learner:
                    return f"group {self._live.config.broker_name} has no master"
                if self._holds_back:
                    return self._why_doubtful()
                await self._elect()
            return None
        role = Role(said.master_epoch, said.master_broker_id, said.master_address, in_sync)
        refusal = self._take(role)
        if self.role is not None and (role.epoch, role.master_id) == (self.role.epoch, self.role.master_id):
            if self.is_master:
                self.lease.renew(line, sent, timeout)
        elif role.epoch >= own.epoch:
            self.lease.void(f"the controller says that broker {role.master_id} is master of epoch {role.epoch}")
        return refusal

    async def _replica_info(self, line: Connection) -> tuple[GetReplicaInfoReply, InSyncSet]:
        header = GetReplicaInfo(broker_name=self._live.config.broker_name, doubtful=self.is_doubtful or None)
        reply = await self.controllers.ask_on(line, Command.request(RequestCode.CONTROLLER_GET_REPLICA_INFO, header))
        if reply.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
            raise _UnknownGroup(reply.remark or "")
        _check(reply)
        said = reply.header(GetReplicaInfoReply)
        in_sync = _in_sync(SyncStateSet.decode(reply.body_bytes))
        if self.is_doubtful:
            self._doubt_is_heard = bool(said.doubtful)
            is_in_sync = self.broker_id in in_sync.members
            self._others_in_sync = in_sync.members - {self.broker_id} if is_in_sync else frozenset()
        return said, in_sync

    @property
    def _holds_back(self) -> bool:
        """Whether controllers must not hear of this broker, since they would elect it though another may have more."""
        return self.is_doubtful and not self._doubt_is_heard and bool(self._others_in_sync)

    def _heartbeat(self, timeout: int | None = None) -> Command:
        """904"""
        config = self._config
        standing = self._standing()
        header = BrokerHeartbeat(
            cluster_name=self._live.config.cluster_name,
            broker_addr=self._address,
            broker_name=self._live.config.broker_name,
            broker_id=self.broker_id,
            epoch=standing.epoch,
            max_offset=standing.max_offset,
            confirm_offset=standing.confirm_offset,
            heartbeat_timeout_mills=config.heartbeat_timeout if timeout is None else timeout,
            election_priority=config.priority,
            doubtful=self.is_doubtful or None,
        )
        return Command.request(RequestCode.BROKER_HEARTBEAT, header)

    # Roles

    def _notified(self, connection: Connection, request: Command) -> Command:
        """1008"""
        role = _role(request.header(NotifyBrokerRoleChanged), request)
        if role is not None:
            self._take(role)
        # Only a hint: what it says is confirmed, and what it lacks is asked for.
        self._poll_soon()
        return request.reply()

    def _take(self, role: Role) -> str | None:
        """Take what a controller says, if it is news. Returns why not if it contradicts what this broker knows."""
        own, known = self.role, self._standing().epoch
        if self.broker_id is None:
            return None
        if role.epoch < (known if own is None else max(known, own.epoch)):
            return self._why_behind(role.epoch)
        if own is None and role.master_id == self.broker_id and self._is_of_former_life(role.epoch):
            return f"this broker was master of epoch {role.epoch} before it crashed; the controller has to choose anew"
        if own is None or role.epoch > own.epoch:
            self._change(role)
            return None
        if role.master_id != own.master_id:
            return (
                f"the controller says that broker {role.master_id} is master of epoch {role.epoch}, but that is broker "
                f"{own.master_id}; has the controller lost its data?"
            )
        if role.in_sync.epoch > own.in_sync.epoch:
            self.role = dataclasses.replace(own, in_sync=role.in_sync)
            if self.is_master:
                self.in_sync_changed(role.in_sync)
        # A master knows its own address, and hears the old one once after it moved.
        if role.master_address != own.master_address and not self.is_master:
            assert self.role is not None
            self._change(dataclasses.replace(self.role, master_address=role.master_address))
        return None

    def _change(self, role: Role) -> None:
        self.role = role
        if self.is_master:
            self.is_doubtful = False  # nobody has more, or it was decided that it does not matter
            self.lease.void(f"epoch {role.epoch} has just begun; the controller has not confirmed it yet")
            logger.info("this broker (%d) is master of epoch %d", role.master_id, role.epoch)
        else:
            self.lease.void(f"broker {role.master_id} is master of epoch {role.epoch}")
            logger.info("broker %d at %s is master of epoch %d", role.master_id, role.master_address, role.epoch)
        self.role_changed(role)
        self._has_role.set()
        self._poll_soon()

    def _poll_soon(self) -> None:
        self._poll_at = 0.0
        self._hurry.set()

    # Words for operators

    def _why_behind(self, epoch: int) -> str:
        ours = max(self._standing().epoch, -1 if self.role is None else self.role.epoch)
        return (
            f"the controller is at epoch {epoch}, but this broker has already seen epoch {ours}; has the controller "
            "lost its data?"
        )

    def _why_doubtful(self) -> str:
        others, name = ", ".join(map(str, sorted(self._others_in_sync))), self._live.config.broker_name
        if self._doubt_is_heard:
            way_out = f"pyromq controller elect {name} {self.broker_id}"
        else:
            way_out = f"stop this broker, delete {self.doubt_path} and start it again"
        return (
            f"broker {self.broker_id} does not become master: {LACKS}; waiting for broker {others}, which may have "
            f"them. If that is lost for good: {way_out}; what only broker {others} had is lost then"
        )

    def _why_without(self, problem: str) -> str:
        if self.is_master and not self.lease.is_valid():
            return f"{problem}; this master takes no messages, because {self.lease.why}"
        return problem

    def _note(self, problem: str) -> None:
        """Show and log a problem; log it again once in a while."""
        self.problem = problem
        now = time.monotonic()
        if now - self._logged.get(problem, now - _REMINDER) >= _REMINDER:
            self._logged = {text: at for text, at in self._logged.items() if now - at < _REMINDER}
            self._logged[problem] = now
            logger.error("%s", problem)

    def _all_is_well(self) -> None:
        if self.problem is not None:
            logger.info("in touch with controller %s again", self.controllers.leader)
        self.problem = None
        self._logged.clear()

    @property
    def _config(self) -> FailoverConfig:
        return self._live.settings[FailoverConfig]


class _UnknownGroup(PyroMQError):
    """The controller knows nothing of this group (2008)."""


def _check(reply: Command) -> None:
    if reply.code != ResponseCode.SUCCESS:
        raise broker_error(reply.code, reply.remark, "controller")


def _role(said: ControllerRegisterBrokerReply | NotifyBrokerRoleChanged, command: Command) -> Role | None:
    """The role in a command with an in-sync set as body; None if it names no master, or lacks something."""
    if said.master_broker_id is None or said.master_epoch is None or not said.master_address or not command.body_bytes:
        return None
    body = SyncStateSet.decode(command.body_bytes)
    epoch = body.sync_state_set_epoch if said.sync_state_set_epoch is None else said.sync_state_set_epoch
    in_sync = InSyncSet(frozenset(body.sync_state_set), epoch)
    return Role(said.master_epoch, said.master_broker_id, said.master_address, in_sync)


def _in_sync(body: SyncStateSet) -> InSyncSet:
    return InSyncSet(frozenset(body.sync_state_set), body.sync_state_set_epoch)


def _now() -> int:
    return time.time_ns() // 1_000_000
