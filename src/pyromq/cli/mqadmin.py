"""`mqadmin`, also `pyromq mqadmin`: RocketMQ's own admin commands, with their names, options and headings."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING

from .failures import Exit, nearest

if TYPE_CHECKING:
    from .classic.commands import Command
    from .session import Session

# The module of each subcommand, and its help.
SUBCOMMANDS = {
    "updateTopic": ("topics", "Create or update a topic."),
    "deleteTopic": ("topics", "Delete a topic from brokers and name servers."),
    "updateTopicPerm": ("topics", "Update the permission of a topic."),
    "topicList": ("topics", "List all topics."),
    "topicRoute": ("topics", "Show the route of a topic."),
    "topicStatus": ("topics", "Show the offsets of a topic."),
    "topicClusterList": ("topics", "Show the clusters of a topic."),
    "updateTopicList": ("topics", "Create or update many topics."),
    "updateOrderConf": ("queues", "Set, show or delete the order configuration of a topic."),
    "allocateMQ": ("queues", "Show how consumers would share the queues of a topic."),
    "statsAll": ("topics", "Show the message rates of topics and groups."),
    "updateSubGroup": ("groups", "Create or update a subscription group."),
    "updateSubGroupList": ("groups", "Create or update many subscription groups."),
    "deleteSubGroup": ("groups", "Delete a subscription group from brokers."),
    "getConsumerConfig": ("groups", "Show the settings of a subscription group."),
    "consumerProgress": ("groups", "Show the progress of consumer groups."),
    "consumerConnection": ("groups", "Show the members of a consumer group."),
    "consumerStatus": ("consumers", "Show what the members of a group are doing."),
    "setConsumeMode": ("consumers", "Choose whether a group pulls or pops a topic."),
    "startMonitoring": ("consumers", "Watch groups for backlog and stuck members."),
    "resetOffsetByTime": ("offsets", "Reset a group's offsets to a time."),
    "skipAccumulatedMessage": ("offsets", "Skip a group's backlog."),
    "cloneGroupOffset": ("offsets", "Copy offsets from one group to another."),
    "producer": ("groups", "Show the producers connected to a broker."),
    "producerConnection": ("groups", "Show the members of a producer group."),
    "queryMsgById": ("queries", "Find a message by its id."),
    "queryMsgByUniqueKey": ("queries", "Find a message by its unique key, set by the producer."),
    "queryMsgByKey": ("queries", "Find messages by a key."),
    "queryMsgByOffset": ("queries", "Find a message by its offset."),
    "queryMsgTraceById": ("queries", "Show the trace of a message."),
    "printMsg": ("messages", "Print the messages of a topic."),
    "printMsgByQueue": ("messages", "Print the messages of a queue."),
    "sendMessage": ("messages", "Send a message."),
    "consumeMessage": ("messages", "Read messages."),
    "checkMsgSendRT": ("latencies", "Show how long sends to a topic take."),
    "sendMsgStatus": ("latencies", "Send messages to one broker."),
    "clusterRT": ("latencies", "Keep measuring how long sends to every broker take."),
    "queryCq": ("queues", "Show entries of a consume queue."),
    "clusterList": ("brokers", "List all brokers with their rates."),
    "brokerStatus": ("brokers", "Show the runtime status of a broker."),
    "haStatus": ("brokers", "Show who follows a master, or whom a slave follows."),
    "brokerConsumeStats": ("brokers", "Show the progress of all groups on a broker."),
    "getBrokerConfig": ("brokers", "Show the settings of a broker."),
    "updateBrokerConfig": ("brokers", "Change a setting of a broker."),
    "cleanExpiredCQ": ("brokers", "Delete consume queues whose messages are gone."),
    "cleanUnusedTopic": ("brokers", "Delete consume queues of topics that do not exist."),
    "deleteExpiredCommitLog": ("brokers", "Delete expired commit log files."),
    "wipeWritePerm": ("brokers", "Remove a broker's write permission."),
    "addWritePerm": ("brokers", "Restore a broker's write permission."),
    "getNamesrvConfig": ("name_servers", "Show the settings of name servers."),
    "updateNamesrvConfig": ("name_servers", "Change a setting of name servers."),
    "updateKvConfig": ("name_servers", "Set a key of a namespace on name servers."),
    "deleteKvConfig": ("name_servers", "Delete a key of a namespace from name servers."),
    "getControllerMetaData": ("controllers", "Show the controllers and which of them leads."),
    "getSyncStateSet": ("controllers", "Show the master of a broker group and who is in sync."),
    "electMaster": ("controllers", "Make a broker the master of its group."),
    "getBrokerEpoch": ("controllers", "Show the epochs of brokers in controller mode."),
    "getControllerConfig": ("controllers", "Show the settings of controllers."),
    "updateControllerConfig": ("controllers", "Change a setting of controllers."),
    "cleanBrokerMetadata": ("controllers", "Make controllers forget brokers."),
    "createUser": ("users", "Create a user."),
    "updateUser": ("users", "Change the password, type or status of a user."),
    "deleteUser": ("users", "Delete a user and what it may do."),
    "getUser": ("users", "Show a user."),
    "listUser": ("users", "List users."),
    "copyUser": ("users", "Copy users from one broker to another."),
    "createAcl": ("users", "Allow or deny a user something."),
    "updateAcl": ("users", "Change what a user is allowed or denied."),
    "deleteAcl": ("users", "Delete what a user is allowed and denied."),
    "getAcl": ("users", "Show what a user may do."),
    "listAcl": ("users", "List what users may do."),
    "copyAcl": ("users", "Copy what users may do from one broker to another."),
    "updateAclConfig": ("accounts", "Create or change an account of 4.x."),
    "deleteAclConfig": ("accounts", "Delete an account of 4.x."),
    "clusterAclConfigVersion": ("accounts", "Show the versions of the account files."),
    "getAclConfig": ("accounts", "List the accounts of 4.x."),
    "updateGlobalWhiteAddr": ("accounts", "Set the addresses that need no account."),
    "exportMetadata": ("exports", "Write topics and groups to a file."),
    "exportConfigs": ("exports", "Write the settings of brokers to a file."),
    "exportMetrics": ("exports", "Write the load of brokers to a file."),
}
# Those whose -i is an interval.
_REPEATED = ("clusterList", "haStatus", "getSyncStateSet", "getBrokerEpoch")
# Other names, by which RocketMQ knows them, too.
_ALIASES = {"deleteaccessconfig": "deleteAclConfig", "getaccessconfigsubcommand": "getAclConfig"}
_BY_LOWER = {name.lower(): name for name in SUBCOMMANDS} | _ALIASES


def console() -> None:
    """The console script `mqadmin`."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and len(arguments) > 1:
        arguments = [arguments[1], "-h"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return Exit.OK
    name = _BY_LOWER.get(arguments[0].lower())
    if name is None:
        near = nearest(arguments[0], SUBCOMMANDS)
        hint = f"did you mean {near[0]}?" if near else "`mqadmin help` lists all subcommands"
        print(f"mqadmin: no subcommand {arguments[0]!r}; {hint}", file=sys.stderr)
        return Exit.USAGE
    return _run(_command(name), arguments[1:])


def _command(name: str) -> Command:
    importlib.import_module(f"pyromq.cli.classic.{SUBCOMMANDS[name][0]}")
    from .classic.commands import COMMANDS

    return COMMANDS[name.lower()]


def _run(command: Command, arguments: list[str]) -> int:
    from .execution import carry_out
    from .session import Asked

    try:
        given = _parser(command).parse_args(arguments)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else Exit.USAGE

    async def call(session: Session, topic: str | None, group: str | None) -> None:
        await command.run(session, given)

    # If one of these two does not exist, the error suggests similar names.
    names = {"topic": getattr(given, "t", None), "group": getattr(given, "g", None)}
    repeated = getattr(given, "i", None) if command.name in _REPEATED else None
    asked = Asked(f"mqadmin {command.name}", namesrv=given.n, watch=repeated)
    return carry_out(call, names, asked, command.timeout, connects=True)


def _parser(command: Command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"mqadmin {command.name}", description=SUBCOMMANDS[command.name][1], allow_abbrev=False
    )
    parser.add_argument("-n", "--namesrvAddr", dest="n", metavar="<arg>", help="Name servers, separated by ';'.")
    for option in command.options:
        names = [f"-{option.letter}"] if option.letter != option.name else []
        names.append(f"--{option.name}")
        if option.value:
            parser.add_argument(
                *names,
                dest=option.letter,
                metavar="<arg>",
                required=option.required,
                type=option.kind if option.kind is not str else str.strip,
                help=option.help,
            )
        else:
            parser.add_argument(*names, dest=option.letter, action="store_true", help=option.help)
    return parser


def _help() -> str:
    width = max(map(len, SUBCOMMANDS)) + 3
    lines = [f"   {name:<{width}} {sentence}" for name, (_, sentence) in SUBCOMMANDS.items()]
    return "\n".join(
        [
            "The most commonly used mqadmin commands are:",
            "",
            *lines,
            "",
            "See 'mqadmin help <command>' for more information on a specific command.",
        ]
    )
