"""Subcommands about controllers and the brokers whose roles they decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.admin.cluster.controllers import split_addresses
from pyromq.client.admin.addresses import replicas
from pyromq.protocol.codes import ResponseCode

from ..failures import CommandFailed, Exit
from .commands import Opt, classic
from .java_text import bool_text

if TYPE_CHECKING:
    import argparse

    from pyromq.protocol.bodies import EpochEntryCache, ReplicaIdentity, ReplicasInfo

    from ..session import Session

CONTROLLER = Opt("a", "controllerAddress", "Controller addresses, separated by ';'.", required=True)
KEY = Opt("k", "key", "The setting.", required=True)
VALUE = Opt("v", "value", "Its value.", required=True)
BROKER_NAME = Opt("b", "brokerName", "Broker name.")
CLUSTER_NAME = Opt("c", "clusterName", "A cluster.")
INTERVAL = Opt("i", "interval", "Repeat, with this many seconds between rounds.", kind=float)


@classic("getControllerMetaData", CONTROLLER)
async def get_controller_meta_data(session: Session, args: argparse.Namespace) -> None:
    found = await session.admin.controllers.leader(_addresses(args))
    print(f"\n#ControllerGroup\t{found.group}")
    print(f"#ControllerLeaderId\t{found.leader_id}")
    print(f"#ControllerLeaderAddress\t{found.leader}")
    for name, address in found.peers.items():
        print(f"#Peer:\t{address if name == address else f'{name}:{address}'}")


@classic("getSyncStateSet", CONTROLLER, BROKER_NAME, CLUSTER_NAME, INTERVAL)
async def get_sync_state_set(session: Session, args: argparse.Namespace) -> None:
    names = [args.b] if args.b else await _names(session, args)
    for name, info in (await session.admin.controllers.replicas(_addresses(args), names)).items():
        _print_group(name, info)


def _print_group(name: str, info: ReplicasInfo) -> None:
    master = "null" if info.master_broker_id is None else info.master_broker_id
    print(f"\n#brokerName\t{name}\n#MasterBrokerId\t{master}\n#MasterAddr\t{info.master_address or 'null'}")
    print(f"#MasterEpoch\t{info.master_epoch}\n#SyncStateSetEpoch\t{info.sync_state_set_epoch}")
    print(f"#SyncStateSetNums\t{len(info.in_sync_replicas)}")
    for each in info.in_sync_replicas:
        print(f"\nInSyncReplica:\t{_identity(each)}")
    for each in info.not_in_sync_replicas:
        print(f"\nNotInSyncReplica:\t{_identity(each)}")


def _identity(member: ReplicaIdentity) -> str:
    return (
        f"ReplicaIdentity{{brokerName='{member.broker_name}', brokerId={member.broker_id}, "
        f"brokerAddress='{member.broker_address}', alive={bool_text(member.alive)}}}"
    )


@classic(
    "electMaster",
    CONTROLLER,
    Opt("b", "brokerId", "The id of the broker that becomes master.", required=True, kind=int),
    Opt("bn", "brokerName", "Its name.", required=True),
    Opt("c", "clusterName", "Its cluster.", required=True),
)
async def elect_master(session: Session, args: argparse.Namespace) -> None:
    won = await session.admin.controllers.elect(_addresses(args), args.c, args.bn, args.b)
    if not won.changed:
        said = f"the old master {won.broker_id} is still alive, not need to elect new master for broker {args.bn}"
        raise CommandFailed(f"{said} (code {ResponseCode.CONTROLLER_MASTER_STILL_EXIST})")
    print(f"\n#ClusterName\t{args.c}\n#BrokerName\t{args.bn}\n#BrokerMasterAddr\t{won.address}")
    print(f"#MasterEpoch\t{won.epoch}\n#SyncStateSetEpoch\t{won.set_epoch}")


@classic("getBrokerEpoch", BROKER_NAME, CLUSTER_NAME, INTERVAL)
async def get_broker_epoch(session: Session, args: argparse.Namespace) -> None:
    if not args.b and not args.c:
        raise CommandFailed("give a broker name with -b or a cluster with -c", Exit.USAGE)
    found = replicas(await session.admin.brokers.cluster_info(), None if args.b else args.c)
    for each in found:
        if not args.b or each.broker == args.b:
            _print_epochs(each.address, await session.admin.brokers.epochs(each.address))


def _print_epochs(address: str, cache: EpochEntryCache) -> None:
    print(f"\n#clusterName\t{cache.cluster_name}\n#brokerName\t{cache.broker_name}")
    print(f"#brokerAddr\t{address}\n#brokerId\t{cache.broker_id}")
    for number, entry in enumerate(cache.epoch_list, 1):
        end = cache.max_offset if number == len(cache.epoch_list) else entry.end_offset
        print(f"#Epoch: EpochEntry{{epoch={entry.epoch}, startOffset={entry.start_offset}, endOffset={end}}}")


@classic("getControllerConfig", CONTROLLER)
async def get_controller_config(session: Session, args: argparse.Namespace) -> None:
    for address, config in (await session.admin.controllers.config(_addresses(args))).items():
        print(f"============{address}============")
        for key, value in config.items():
            print(f"{key:<50}=  {value}")


@classic("updateControllerConfig", CONTROLLER, KEY, VALUE)
async def update_controller_config(session: Session, args: argparse.Namespace) -> None:
    done = await session.admin.controllers.set_config(_addresses(args), {args.k: args.v})
    print(f"update controller config success![{', '.join(done)}]\n{args.k} : {args.v}")


@classic(
    "cleanBrokerMetadata",
    CONTROLLER,
    Opt("b", "brokerControllerIdsToClean", "Ids of the brokers to forget, separated by ';'; all without."),
    Opt("bn", "brokerName", "Broker name.", required=True),
    Opt("c", "clusterName", "Its cluster; needed without -l."),
    Opt("l", "cleanLivingBroker", "Forget brokers even while they run.", value=False),
)
async def clean_broker_metadata(session: Session, args: argparse.Namespace) -> None:
    if not args.l and not args.c:
        raise CommandFailed("without -l, give the cluster with -c", Exit.USAGE)
    try:
        ids = [int(each) for each in (args.b or "").split(";") if each.strip()]
    except ValueError:
        raise CommandFailed(f"{args.b!r} is not a list of ids like 1;2", Exit.USAGE) from None
    await session.admin.controllers.clean(_addresses(args), args.bn, ids, cluster=args.c, living=args.l)
    print(f"clear broker {args.bn} metadata from controller success! ")


def _addresses(args: argparse.Namespace) -> tuple[str, ...]:
    addresses = split_addresses(args.a)
    if not addresses:
        raise CommandFailed("-a names no controller", Exit.USAGE)
    return addresses


async def _names(session: Session, args: argparse.Namespace) -> list[str]:
    if not args.c:
        raise CommandFailed("give a broker name with -b or a cluster with -c", Exit.USAGE)
    return sorted({each.broker for each in replicas(await session.admin.brokers.cluster_info(), args.c)})
