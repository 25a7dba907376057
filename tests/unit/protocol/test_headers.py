"""The declared headers against the tables of docs/spec: wire names, types, and which fields are required."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import msgspec
import pytest

from pyromq.protocol import headers
from pyromq.protocol.header import I32, I64, Header

DOCS = Path(__file__).parents[3] / "docs/spec"
REMOTING = (DOCS / "remoting.md").read_text(encoding="utf-8")
NAMESRV = (DOCS / "namesrv.md").read_text(encoding="utf-8")
BROKER = (DOCS / "broker.md").read_text(encoding="utf-8")
CONTROLLER = (DOCS / "controller.md").read_text(encoding="utf-8")

TYPES = {"str": str, "i32": I32, "i64": I64, "bool": bool}

# The request headers by code. Where one class serves several codes, each of them must agree with its table.
BROKER_REQUESTS = {
    12: headers.QueryMessage,
    14: headers.QueryConsumerOffset,
    15: headers.UpdateConsumerOffset,
    17: headers.CreateTopic,
    29: headers.SearchOffset,
    30: headers.GetMaxOffset,
    31: headers.GetMinOffset,
    32: headers.GetEarliestStoreTime,
    33: headers.ViewMessage,
    35: headers.UnregisterClient,
    36: headers.ConsumerSendMessageBack,
    37: headers.EndTransaction,
    38: headers.GetConsumerListByGroup,
    39: headers.CheckTransactionState,
    40: headers.NotifyConsumerIdsChanged,
    220: headers.ResetOffset,
    221: headers.GetConsumerStatus,
    307: headers.GetConsumerRunningInfo,
    309: headers.ConsumeMessageDirectly,
    326: headers.PushReplyMessage,
}
BROKER_REPLIES = {
    12: headers.QueryMessageReply,
    14: headers.OffsetReply,
    29: headers.OffsetReply,
    30: headers.OffsetReply,
    31: headers.OffsetReply,
    32: headers.GetEarliestStoreTimeReply,
}
NAMESRV_REQUESTS = {
    100: headers.PutKVConfig,
    101: headers.GetKVConfig,
    102: headers.GetKVConfig,
    104: headers.BrokerIdentity,
    105: headers.GetRouteInfo,
    205: headers.WipeWritePerm,
    216: headers.DeleteTopicInNamesrv,
    217: headers.RegisterTopicInNamesrv,
    219: headers.GetKVListByNamespace,
    224: headers.GetTopicsByCluster,
    322: headers.BrokerIdentity,
    327: headers.WipeWritePerm,
    901: headers.GetBrokerMemberGroup,
    904: headers.BrokerHeartbeat,
}
NAMESRV_REPLIES = {
    101: headers.GetKVConfigReply,
    205: headers.WipeWritePermReply,
    322: headers.QueryDataVersionReply,
    327: headers.AddWritePermReply,
}
# Of which the specification does not speak. 906: RocketMQ 5.x has the master's addresses, the others are ours.
# 3001 to 3010 are as in RocketMQ 5.5.0.
EXCHANGED = {
    # 50 to 53, as in RocketMQ 4.9.8, but for the errors.
    "UpdateAclConfig": {
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
        "accessKey",
        "secretKey",
    },
    "DeleteAclConfig": {"accessKey"},
    "GetAclInfoReply": {"version", "allAclFileVersion", "fileErrors", "clusterName"},
    "UpdateGlobalWhiteAddresses": {"globalWhiteAddrs", "aclFileFullPath"},
    "ExchangeHAInfo": {
        "masterHaAddress",
        "fileSize",
        "instance",
        "haClientAddr",
        "logEnd",
        "problem",
        "leaving",
        "haProtection",
    },
    "ExchangeHAInfoReply": {"masterHaAddress", "masterFlushOffset", "fileSize", "refusal"},
    "UserName": {"username"},
    "AclSubject": {"subject"},
    "DeleteAcl": {"subject", "policyType", "resource"},
    "ListAcls": {"subjectFilter", "resourceFilter"},
}
# Said in prose or in the table of another section.
ELSEWHERE = {"zoneName", "zoneMode", "__ZONE_NAME", "__ZONE_MODE"}
# Between brokers and controllers of ours; RocketMQ's ignore it.
OURS = {"doubtful"}


def declared(header: type[Header]) -> dict[str, tuple[object, bool]]:
    """Wire name -> (type without None, whether it is required)."""
    hints = typing.get_type_hints(header, include_extras=True)
    found = {}
    for field in msgspec.structs.fields(header):
        hint = hints[field.name]
        if type(None) in typing.get_args(hint):
            (hint,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
        found[field.encode_name] = (hint, field.required)
    return found


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table under `heading`, without its title rows."""
    first = re.search(r"(^\|.*\n)+", text.split(heading, 1)[1], re.MULTILINE)
    assert first
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in first[0].splitlines()[2:]]


def table(
    text: str, heading: str, name_cell: int, type_cell: int, required_cell: int
) -> dict[str, tuple[object, bool]]:
    """A table of one field per row; a row may name several fields, with one type for all or one for each."""
    found: dict[str, tuple[object, bool]] = {}
    for cells in rows(text, heading):
        names = [name.strip("` ") for name in cells[name_cell].split(",")]
        types = [name.strip() for name in cells[type_cell].split(",")]
        for number, name in enumerate(names):
            kind = TYPES[types[number] if len(types) > 1 else types[0]]
            found[name] = (kind, cells[required_cell] == "R")
    return found


def by_code(text: str, heading: str) -> dict[int, list[str]]:
    return {
        int(number): cells for cells in rows(text, heading) for number in re.findall(r"\d+", cells[0].split("(")[0])
    }


def starred(cell: str) -> set[str]:
    return set(re.findall(r"(\w+)\*", cell))


def typed(cell: str) -> dict[str, object]:
    """The names in front of a type; of several without a type between them only the last is sure."""
    return {name: TYPES[kind] for name, kind in re.findall(r"(\w+)\*? (str|i32|i64|bool)\b", cell)}


def test_every_declared_header_is_exported():
    def subclasses(kind: type[Header]) -> set[type[Header]]:
        return {kind} | {deeper for sub in kind.__subclasses__() for deeper in subclasses(sub)}

    ours = {kind.__name__ for kind in subclasses(Header) if kind.__module__.startswith(headers.__name__)}
    assert ours == set(headers.__all__)
    assert all(hasattr(headers, name) for name in headers.__all__)


def test_the_send_header_with_long_names_follows_its_table():
    expected = table(REMOTING, "### 4.1 ", 0, 2, 3)
    assert declared(headers.SendMessage) == expected


def test_the_send_header_with_letters_follows_its_table():
    expected = table(REMOTING, "### 4.1 ", 1, 2, 3)
    assert declared(headers.SendMessageV2) == expected
    assert list(declared(headers.SendMessageV2)) == list("abcdefghijklmn")


def test_both_send_headers_have_the_same_fields_in_the_same_order():
    assert headers.SendMessage.__struct_fields__ == headers.SendMessageV2.__struct_fields__


def test_the_pull_header_follows_its_table():
    assert declared(headers.PullMessage) == table(REMOTING, "### 4.2 ", 0, 1, 2)


def test_the_register_header_follows_its_table():
    assert declared(headers.RegisterBroker) == table(NAMESRV, "### 4.1 ", 0, 1, 2)


@pytest.mark.parametrize(
    ("text", "heading", "cell", "code", "header"),
    [
        *((REMOTING, "### 4.3 ", 1, code, header) for code, header in BROKER_REQUESTS.items()),
        *((NAMESRV, "## 3 Request", 2, code, header) for code, header in NAMESRV_REQUESTS.items()),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_a_request_header_follows_its_row(text, heading, cell, code, header):
    said = by_code(text, heading)[code][cell]
    fields = declared(header)
    assert {name for name, (_, required) in fields.items() if required} == starred(said)
    named = set(re.findall(r"\w+", said))
    assert fields.keys() - named <= ELSEWHERE | OURS
    for name, kind in typed(said).items():
        assert fields[name][0] == kind, name


@pytest.mark.parametrize(
    ("text", "heading", "cell", "code", "header"),
    [
        *((REMOTING, "### 4.3 ", 3, code, header) for code, header in BROKER_REPLIES.items()),
        *((NAMESRV, "## 3 Request", 3, code, header) for code, header in NAMESRV_REPLIES.items()),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_a_reply_header_follows_its_row(text, heading, cell, code, header):
    said = by_code(text, heading)[code][cell]
    fields = declared(header)
    assert fields.keys() <= set(re.findall(r"\w+", said)) | OURS
    for name, kind in typed(said).items():
        assert fields[name][0] == kind, name


@pytest.mark.parametrize("name", headers.__all__)
def test_every_wire_name_occurs_in_the_specification(name):
    words = set(re.findall(r"\w+", REMOTING + NAMESRV + BROKER + CONTROLLER))
    assert declared(getattr(headers, name)).keys() <= words | EXCHANGED.get(name, set()) | OURS


def test_the_replies_of_send_and_pull_have_the_fields_of_the_specification():
    send = declared(headers.SendMessageReply)
    assert {name for name, (_, required) in send.items() if required} == {"msgId", "queueId", "queueOffset"}
    assert send.keys() - {"msgId", "queueId", "queueOffset"} == {
        "transactionId",
        "MSG_REGION",
        "TRACE_ON",
        "batchUniqId",
        "recallHandle",
    }
    pull = declared(headers.PullMessageReply)
    required = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}
    assert {name: kind for name, (kind, is_required) in pull.items() if is_required} == dict.fromkeys(required, I64)
    assert pull.keys() - required == {"offsetDelta", "topicSysFlag", "groupSysFlag", "forbiddenType"}


def test_a_field_that_is_not_needed_does_not_refuse_a_pull():
    """remoting.md 4.0: `commitOffset` is required, yet a pull that commits nothing is served without it."""
    ext = {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "5", "maxMsgNums": "32", "sysFlag": "0"}
    pull = headers.PullMessage.from_ext(ext)
    assert (pull.queue_offset, pull.max_msg_nums, pull.subscription) == (5, 32, None)


def test_the_force_flag_keeps_its_prefix():
    """Java names the ext key after the field, not after its getter."""
    assert headers.ResetOffset("t", "g", 1, True).to_ext()["isForce"] == "true"


CONTROLLER_REQUESTS = {
    "### 2.3 ": headers.AlterSyncStateSet,
    "### 2.4 ": headers.ElectMaster,
    "### 2.5 ": headers.ControllerRegisterBroker,
    "### 2.6 ": headers.GetReplicaInfo,
    "### 2.12 ": headers.CleanBrokerData,
    "| 1012 |": headers.GetNextBrokerId,
    "| 1013 |": headers.ApplyBrokerId,
}


@pytest.mark.parametrize(("place", "header"), CONTROLLER_REQUESTS.items(), ids=lambda value: str(value).strip("# |"))
def test_a_controller_header_follows_the_line_of_its_code(place, header):
    said = CONTROLLER.split(place, 1)[1].removeprefix(" ")
    said = said.split("|")[0] if place.startswith("|") else said.split("Ext: ", 1)[1].split("\n")[0]
    said = said.split(". ")[0]
    fields = declared(header)
    marked = {name for name, _, mark in re.findall(r"(\w+)( \w+| \(\W\w+;\w+\W\)| str)*? ([Rr])\b", said)}
    assert {name for name, (_, required) in fields.items() if required} == marked
    assert fields.keys() <= set(re.findall(r"\w+", said)) | OURS
    for name, kind in typed(said).items():
        assert fields[name][0] == kind, name


def test_the_heartbeat_of_a_broker_to_a_controller_follows_its_table():
    fields = {name: each for name, each in declared(headers.BrokerHeartbeat).items() if name not in OURS}
    assert fields == table(CONTROLLER, "### 2.2 ", 0, 1, 2)
