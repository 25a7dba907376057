"""Stand-ins for controllers, brokers in controller mode and their name server, on real sockets.

They hold what a test puts into them and answer as docs/spec/controller.md 2 says, so that a test can show what no
cluster in good health would: a lead that changes, two masters, a broker far behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from pyromq.protocol import bodies, headers
from pyromq.remoting import RemotingServer, ServerConfig, run

if TYPE_CHECKING:
    from pyromq.protocol.command import Command

NOT_LEADER = (2007, "The controller is not in leader state")


@dataclass
class StandInBroker:
    """A broker of a group: what the controller knows of it, and what it says itself."""

    id: int
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])
    end: int = 0
    alive: bool = True
    claims_master: bool | None = None
    runs: bool = True
    address: str = ""


@dataclass
class StandInGroup:
    """The brokers of one name, and what a controller keeps of them."""

    name: str
    brokers: list[StandInBroker]
    cluster: str = "C"
    master: int | None = 1
    epoch: int = 1
    set_epoch: int = 1
    in_sync: list[int] = field(default_factory=lambda: [1])

    def broker(self, broker_id):
        return next(each for each in self.brokers if each.id == broker_id)

    @property
    def info(self):
        members = {
            each.id: bodies.ReplicaIdentity(
                alive=each.alive, broker_address=each.address, broker_id=each.id, broker_name=self.name
            )
            for each in self.brokers
        }
        return bodies.ReplicasInfo(
            in_sync_replicas=[member for each, member in members.items() if each in self.in_sync],
            not_in_sync_replicas=[member for each, member in members.items() if each not in self.in_sync],
            master_broker_id=self.master,
            master_address=None if self.master is None else self.broker(self.master).address,
            master_epoch=self.epoch,
            sync_state_set_epoch=self.set_epoch,
        )


class StandIns:
    """A name server, `count` controllers and the brokers of these groups.

    `leader` is the number of the leading controller, `named` whom each of them calls leader if that differs. `asked`
    holds the requests of each controller.
    """

    def __init__(self, *groups, count=1):
        self.groups = {group.name: group for group in groups}
        self.leader = 0
        self.named = {}
        self.asked: list[list[Command]] = [[] for _ in range(count)]
        self.configs = [{"controllerType": "DLedger", "enableElectUncleanMaster": "false"} for _ in range(count)]
        self.on_request = lambda number, request: None
        self.in_name_server = False
        self.controllers = []
        self.namesrv = ""
        self._servers = []
        self._life = contextlib.AsyncExitStack()

    @property
    def addresses(self):
        return ";".join(self.controllers)

    async def __aenter__(self):
        async with self._life as life:
            for number in range(len(self.asked)):
                server = await life.enter_async_context(_server(self._controller(number)))
                self._servers.append(server)
                self.controllers.append(_address(server))
            for group in self.groups.values():
                for broker in group.brokers:
                    server = await life.enter_async_context(_server(self._broker(group, broker)))
                    broker.address = _address(server)
                    if not broker.runs:
                        await server.__aexit__(None, None, None)
            self.namesrv = _address(await life.enter_async_context(_server({106: self._brokers, 319: self._settings})))
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *exc_info):
        await self._life.aclose()

    async def stop_controller(self, number):
        await self._servers[number].__aexit__(None, None, None)

    # The name server

    def _brokers(self, _, request):
        table = {}
        for group in self.groups.values():
            addresses = {0 if each.id == group.master else each.id: each.address for each in group.brokers if each.runs}
            if addresses:
                table[group.name] = bodies.BrokerData(
                    broker_addrs=addresses, broker_name=group.name, cluster=group.cluster
                )
        clusters: dict[str, list[str]] = {}
        for group in self.groups.values():
            clusters.setdefault(group.cluster, []).append(group.name)
        info = bodies.ClusterInfo(broker_addr_table=table, cluster_addr_table=clusters)
        return request.reply(body=info.encode())

    def _settings(self, _, request):
        text = ""
        if self.in_name_server:
            peers = ";".join(f"n{number}-{address}" for number, address in enumerate(self.controllers))
            text = f"enableControllerInNamesrv=true\ncontrollerDLegerPeers={peers}\n"
        return request.reply(body=text.encode())

    # A controller

    def _controller(self, number):
        def answering(processor, *, leader_only):
            def answer(_, request):
                self.asked[number].append(request)
                self.on_request(number, request)
                if leader_only and number != self.leader:
                    return request.reply(*NOT_LEADER)
                return processor(request)

            return answer

        def config(request):
            lines = (f"{key}={value}\n" for key, value in self.configs[number].items())
            return request.reply(body="".join(lines).encode())

        def update(request):
            wanted = dict(line.split("=", 1) for line in request.body_bytes.decode().splitlines() if "=" in line)
            if "configStorePath" in wanted:
                return request.reply(16, "Can not update config in black list.")
            self.configs[number].update(wanted)
            return request.reply()

        return {
            1005: answering(lambda request: self._metadata(number, request), leader_only=False),
            1006: answering(self._replicas, leader_only=True),
            1002: answering(self._elect, leader_only=True),
            1011: answering(self._clean, leader_only=True),
            1009: answering(update, leader_only=False),
            1010: answering(config, leader_only=False),
        }

    def _metadata(self, number, request):
        leader = self.named.get(number, self.leader)
        header = headers.GetMetadataInfoReply(
            group="group1",
            controller_leader_id=None if leader is None else f"n{leader}",
            controller_leader_address=None if leader is None else self.controllers[leader],
            is_leader=number == leader,
            peers="".join(f"n{each}:{address};" for each, address in enumerate(self.controllers)),
        )
        return request.reply(header=header)

    def _replicas(self, request):
        names = msgspec.json.decode(request.body_bytes)
        table = {name: self.groups[name].info for name in names if name in self.groups}
        return request.reply(body=bodies.BrokerReplicasInfo(replicas_info_table=table).encode())

    def _elect(self, request):
        wanted = request.header(headers.ElectMaster)
        assert wanted.designate_elect
        group = self.groups.get(wanted.broker_name)
        if group is None:
            return request.reply(2010, "Broker hasn't been registered")
        able = [each.id for each in group.brokers if each.alive and each.id in group.in_sync]
        if wanted.broker_id not in able:
            return request.reply(2012, "Failed to elect a new master")
        if wanted.broker_id == group.master:
            remark = (
                f"The old master {group.master} is still alive, not need to elect new master for broker {group.name}"
            )
            return request.reply(2011, remark)
        group.master, group.in_sync = wanted.broker_id, [wanted.broker_id]
        group.epoch, group.set_epoch = group.epoch + 1, group.set_epoch + 1
        header = headers.ElectMasterReply(
            master_broker_id=group.master,
            master_address=group.broker(group.master).address,
            master_epoch=group.epoch,
            sync_state_set_epoch=group.set_epoch,
        )
        return request.reply(header=header, body=bodies.ElectMasterResponseBody(sync_state_set=group.in_sync).encode())

    def _clean(self, request):
        wanted = request.header(headers.CleanBrokerData)
        group = self.groups.get(wanted.broker_name)
        if group is None:
            return request.reply(2009, f"Broker {wanted.broker_name} is not existed,clean broker data failure.")
        ids = [int(each) for each in (wanted.broker_controller_ids_to_clean or "").split(";") if each]
        if not wanted.is_clean_living_broker:
            if not ids and group.master is not None:
                return request.reply(2009, f"Broker {group.name} is still alive, clean up failure")
            for each in ids:
                if group.broker(each).alive:
                    return request.reply(2009, f"Broker [{group.name},  {each}] is still alive, clean up failure")
        group.brokers = [each for each in group.brokers if ids and each.id not in ids]
        group.in_sync = [each for each in group.in_sync if ids and each not in ids]
        if not group.brokers:
            del self.groups[group.name]
        return request.reply()

    # A broker

    def _broker(self, group, broker):
        def leads():
            return broker.id == group.master if broker.claims_master is None else broker.claims_master

        def epochs(_, request):
            starts = [start for _, start in broker.epochs]
            entries = [
                bodies.EpochEntry(epoch=epoch, start_offset=start, end_offset=end)
                for (epoch, start), end in zip(broker.epochs, [*starts[1:], 2**63 - 1], strict=True)
            ]
            cache = bodies.EpochEntryCache(
                broker_id=0 if leads() else broker.id,
                broker_name=group.name,
                cluster_name=group.cluster,
                epoch_list=entries,
                max_offset=broker.end,
            )
            return request.reply(body=cache.encode())

        def ha(_, request):
            info = bodies.HARuntimeInfo(master=leads(), master_commit_log_max_offset=broker.end if leads() else 0)
            if not leads():
                slave = bodies.HAClientInfo(max_offset=broker.end, master_addr="127.0.0.1:1")
                info = msgspec.structs.replace(info, ha_client_runtime_info=slave)
            else:
                info = msgspec.structs.replace(info, in_sync_slave_nums=len(group.in_sync) - 1)
            return request.reply(body=info.encode())

        def config(_, request):
            text = f"brokerName={group.name}\nenableControllerMode=true\ncontrollerAddr={self.addresses}\n"
            return request.reply(body=text.encode())

        def runtime(_, request):
            return request.reply(body=bodies.KVTable(table={"brokerVersionDesc": "V5_5_0"}).encode())

        return {26: config, 28: runtime, 907: ha, 1007: epochs}


def _server(processors):
    config = ServerConfig(listen_port=0, bind_address="127.0.0.1")
    return RemotingServer(config, processors, default=lambda _, request: request.reply(3, "not supported"))


def _address(server):
    return f"127.0.0.1:{server.port}"


def pair(name="fx", **fields):
    """A group of two: 1 is master, both are in sync."""
    group = StandInGroup(name, [StandInBroker(1, end=696), StandInBroker(2, end=696)], in_sync=[1, 2])
    return replace(group, **fields)


@contextlib.contextmanager
def running(stand_ins):
    """Run them in a thread of their own, for commands that have a loop themselves."""
    started, ended = threading.Event(), []
    failures = []

    async def life():
        async with stand_ins:
            ended.append((asyncio.get_running_loop(), asyncio.Event()))
            started.set()
            await ended[0][1].wait()

    def work():
        try:
            run(life())
        except BaseException as exc:
            failures.append(exc)
        finally:
            started.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    started.wait()
    try:
        if not failures:
            yield stand_ins
    finally:
        for loop, event in ended:
            loop.call_soon_threadsafe(event.set)
        thread.join()
    if failures:
        raise failures[0]
