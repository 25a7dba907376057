"""What is fuzzed, and what must hold. Each target states its invariants in its docstring.

A target takes any bytes. It returns a number that tells shapes of accepted values apart, so that inputs of a new shape
are kept and mutated further, or it raises one of the errors that bad bytes may end in. Anything else is a finding.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from pyromq import _native
from pyromq.auth import Refused
from pyromq.auth.acl import yaml_text
from pyromq.auth.acl.addresses import EVERYWHERE, Addresses, numbers_of
from pyromq.auth.acl.addresses import parse as parse_address
from pyromq.auth.acl.files import parse as parse_accounts
from pyromq.auth.users.conversion import acl_info, policies_of, user_of
from pyromq.auth.users.model import PolicyEntry, Resource, address_of, deciding
from pyromq.auth.users.users_file import UsersFile
from pyromq.auth.users.vault import Vault
from pyromq.broker.send import strip_wait
from pyromq.errors import ConfigError, CorruptRecord, InvalidFilter, MissingField, RemoteProtocolError
from pyromq.filter import compile_filter
from pyromq.filter.grammar import MAX_DEPTH, MAX_LENGTH, MAX_NODES, parse
from pyromq.filter.nodes import depth_of
from pyromq.protocol import batch, bodies, fastjson, headers, ids, json_header, properties, record_crc
from pyromq.protocol.binary_header import decode as decode_binary
from pyromq.protocol.binary_header import encode as encode_binary
from pyromq.protocol.command import Command, SerializeType
from pyromq.protocol.frame import FrameDecoder, encode
from pyromq.protocol.message import MessageExt
from pyromq.protocol.record import (
    MIN_RECORD_SIZE,
    MessageRecord,
    body_crc,
    decode_record,
    decode_records,
    encode_record,
    read_head,
)
from pyromq.protocol.rights import EVERY, Action, Need, ResourceKind

from . import tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyromq.auth.users.model import Policies
    from pyromq.protocol.header import Header

REFUSALS = (RemoteProtocolError, CorruptRecord, InvalidFilter, Refused, ConfigError)

_FEW = 50  # of what is looked up one by one, lest the check itself takes quadratic time

_HEADERS: list[type[Header]] = [getattr(headers, name) for name in headers.__all__]
_BODIES: dict[str, type[bodies.Body]] = {
    name: kind
    for name in bodies.__all__
    if isinstance(kind := getattr(bodies, name), type) and issubclass(kind, bodies.Body)
}


class Target(NamedTuple):
    """`tokens` are words of the target's language; `repair` makes lengths true again, so that damage gets deeper."""

    check: Callable[[str, bytes], int]
    tokens: Sequence[bytes]
    repair: Callable[[bytes], bytes] | None = None


# Frames


class _Queue:
    """As much of a consume queue as a run of sends needs."""

    topic, fixed_size, topic_field = "orders", MIN_RECORD_SIZE + 6, b"\x06orders"

    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id
        self.next_offset = 0
        self.entries = b""

    def mark(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def add_all(self, entries: bytes, end: int) -> None:
        self.entries += entries


_sends = _native.module("send_run")


def sends(_label: str, data: bytes) -> int:
    """Of any stream, compiled code takes whole frames from the front, and only sends that the decoder reads the same.
    Their records decode to what Python makes of these commands; nothing else is touched.
    """
    assert _sends is not None
    queues = [_Queue(number) for number in range(4)]
    target = _sends.Target(b"orders", _Queue.topic_field, b"CLUSTER\x01c", queues, 0, _Queue.fixed_size, None)
    replies = _sends.Replies(b"{", b"}", b"", bytes(21), b"")
    run = _sends.SendRun(replies, bytes(8))
    end = run.take(None, bytes(8), data, 0, 64, 1 << 16, {b"orders": target}, lambda _: None)
    commands, refusal = _decode_stream(data[:end], end or 1)
    assert refusal is None, refusal
    assert len(commands) == run.taken == run.count, f"{len(commands)} commands, {run.taken} taken"
    if not commands:
        raise RemoteProtocolError("no usual send")
    made, _ = run.place(1 << 33, 5, {}, True)
    records = list(decode_records(made))
    assert sum(len(queue.entries) for queue in queues) == 20 * len(records)
    for command, found in zip(commands, records, strict=True):
        ext = command.ext or {}
        text, wait = strip_wait(ext.get("i", ""))
        assert (command.code, wait, ext["b"], int(ext["e"])) == (310, True, found.topic, found.queue_id)
        assert found.properties == ((text + "\x02" if text else "") + "CLUSTER\x01c").encode()
        assert (found.body, found.born_timestamp, found.flag) == (command.body_bytes, int(ext["g"]), int(ext["h"]))
        assert (found.sys_flag, found.reconsume_times) == (int(ext["f"]), int(ext.get("j", "0")))
        assert found.body_crc == body_crc(found.body)
    assert [unit[1][0].properties for unit in run.units(MessageRecord)] == [each.properties for each in records]
    kinds = [(command.serialize, command.flag, bool(command.body), len(command.ext or {})) for command in commands]
    names = [each.properties.count(1) for each in records]
    return hash((*kinds, *names, *[len(queue.entries) for queue in queues]))


_pulls = _native.module("pull_head")
_NUMBERS = {"queueOffset": 12, "commitOffset": 345}


def pulls(_label: str, data: bytes) -> int:
    """A frame that compiled code splits and that the decoder reads with the same numbers keeps its rest, and all else
    that the decoder reads, when the numbers are others: then one may be judged by what was said of the other.
    """
    assert _pulls is not None
    found = _pulls.split(data, 0, 1 << 16)
    if found is None:
        raise RemoteProtocolError("no pull")
    end, rest, *numbers = found
    commands, refusal = _decode_stream(data[:end], end)
    if refusal is not None or len(commands) != 1:
        return 0
    (command,) = commands
    ext = command.ext or {}
    if [command.opaque, *(ext.get(name) for name in _NUMBERS)] != [numbers[0], *map(str, numbers[1:])]:
        return 1
    other, _ = _decode_stream(data[:end], end)
    other[0].opaque, other[0].ext = 9, ext | {name: str(number) for name, number in _NUMBERS.items()}
    changed = data[:end]
    if command.serialize is SerializeType.JSON:
        for name, number in _NUMBERS.items():
            changed = changed.replace(f'"{name}":"{ext[name]}"'.encode(), f'"{name}":"{number}"'.encode())
        changed = changed.replace(f'"opaque":{command.opaque}'.encode(), b'"opaque":9')
        size = len(changed) - 8
        changed = (size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + changed[8:]
    elif encode(command) != changed:
        return 2
    else:
        changed = encode(other[0])
    assert _pulls.split(changed, 0, 1 << 16) == (len(changed), rest, 9, *_NUMBERS.values())
    assert _decode_stream(changed, len(changed)) == (other, None)
    return hash((command.serialize, command.code, command.flag, len(ext)))


def frames(_label: str, data: bytes) -> int:
    """Any stream gives commands or RemoteProtocolError, the same ones in whatever pieces it arrives.
    What is accepted is encoded and decoded to the same command; what is not there is never reserved.
    """
    whole, refusal = _decode_stream(data, len(data) or 1)
    step = len(data) % 13 + 1
    pieces, refused_in_pieces = _decode_stream(data, step)
    assert pieces == whole, f"{len(whole)} commands at once, {len(pieces)} in pieces of {step} bytes"
    assert (refusal is None) == (refused_in_pieces is None), (
        f"refused at once: {refusal}; in pieces: {refused_in_pieces}"
    )
    for command in whole:
        again, error = _decode_stream(encode(command), 1 << 20)
        assert error is None
        assert again == [command]
    if refusal is not None:
        raise refusal
    return hash((len(whole), *(command.serialize for command in whole), *(command.body is None for command in whole)))


def _decode_stream(data: bytes, step: int) -> tuple[list[Command], RemoteProtocolError | None]:
    decoder = FrameDecoder()
    commands = []
    try:
        for start in range(0, len(data), step):
            decoder.feed(data[start : start + step])
            while (command := decoder.next()) is not None:
                commands.append(command)
    except RemoteProtocolError as exc:
        return commands, exc
    assert decoder.pending <= len(data)
    return commands, None


def _repair_frame(data: bytes) -> bytes:
    """One frame around all of `data`, its header as long as it says, within limits."""
    kind = data[4] & 1 if len(data) > 4 else 0
    content = data[8:]
    header_size = min(int.from_bytes(data[5:8], "big"), len(content))
    return struct.pack(">iI", 4 + len(content), kind << 24 | header_size) + content


# Headers


def headers_(label: str, data: bytes) -> int:
    """Header bytes give a command or RemoteProtocolError; strict and tolerant JSON agree where strict succeeds.
    A command is encoded and decoded to itself; each field of each custom header has a value or raises MissingField.
    """
    if label == "json":
        command = json_header.decode(data)
        _json_decoders_agree(data, command)
        assert json_header.decode(json_header.encode(command)) == command
    else:
        command = decode_binary(data)
        assert decode_binary(encode_binary(command)) == command
        # Whatever a binary header can say, a JSON header can say too.
        as_json = json_header.decode(json_header.encode(command))
        as_json.serialize = SerializeType.ROCKETMQ
        assert as_json == command
    header_type = _HEADERS[len(data) % len(_HEADERS)]
    header = command.header(header_type)
    missing = 0
    for name in header_type.__struct_fields__:
        try:
            getattr(header, name)
        except MissingField:
            missing += 1
    if not missing:
        assert header_type.from_ext(header.to_ext()) == header
    return hash((command.language, command.remark is None, len(command.ext or ()), missing))


def _json_decoders_agree(data: bytes, command: Command) -> None:
    try:
        strict = json_header._decode_strict(data)
    except (ValueError, RecursionError):
        return
    strict.body, strict.serialize = None, SerializeType.JSON
    assert strict == command
    assert json_header.decode_tolerant(data) == command


# Records


def records(_label: str, data: bytes) -> int:
    """Bytes give records or CorruptRecord; a record with a true CRC is encoded to the very bytes it came from.
    Every property of a message can be asked for: it has a value, or its body does not decompress.
    """
    with suppress(CorruptRecord):
        read_head(data)
    found = decode_records(data, check_crc=False)
    pos = 0
    shape = []
    for record in found:
        raw = data[pos : pos + int.from_bytes(data[pos : pos + 4], "big")]
        _check_record(record, raw)
        record_crc.verify(raw)
        shape.append((record.magic, record.sys_flag & 0x7F1))
        pos += len(raw)
    assert pos == len(data)
    assert decode_records(memoryview(data), check_crc=False) == found
    return hash(tuple(shape))


def _check_record(record: MessageRecord, raw: bytes) -> None:
    crc_is_true = record.body_crc == body_crc(record.body)
    try:
        assert decode_record(raw) == record
        assert crc_is_true
    except CorruptRecord:
        assert not crc_is_true
    assert record.store_size >= len(raw) or "\ufffd" in record.topic
    if "\ufffd" not in record.topic:  # else the topic was no UTF-8 and may not fit any more
        written = encode_record(record)
        assert (written == raw) is crc_is_true
        assert decode_record(written) == structs.replace(record, body_crc=body_crc(record.body))
    message = MessageExt(record, "broker-a")
    _ = message.tags, message.keys, message.msg_id, message.transaction_id, message.real_topic, message.queue
    _ = record.born_address, record.store_address, repr(message)
    assert ids.decode_offset_message_id(record.offset_msg_id) if record.physical_offset >= 0 else True
    for name in islice(message.properties, _FEW):
        if "\ufffd" not in name:
            assert record.find_property(name) == message.properties[name]
    try:
        _ = message.body
        inner = batch.unwrap(record)
    except CorruptRecord:
        return
    assert inner == [record] or all(part.topic == record.topic for part in inner)


def _repair_record(data: bytes) -> bytes:
    """TOTALSIZE as many bytes as there are: then it is the inner lengths that are wrong."""
    return len(data).to_bytes(4, "big") + data[4:]


# Batches


def batches(_label: str, data: bytes) -> int:
    """The body of a batch gives at least one item or CorruptRecord; the items are encoded and decoded to themselves.
    Expanding keeps their number, bodies and flags, and adds the properties of the batch to each.
    """
    items = batch.decode_batch(data)
    assert items
    assert sum(item.size for item in items) == len(data)
    written = batch.encode_batch(items)
    assert batch.decode_batch(written) == items
    assert batch.decode_batch(memoryview(data)) == items
    shared = b"CLUSTER\x01c1"
    expanded = batch.expand(MessageRecord("orders", data, shared))
    assert [(record.body, record.flag) for record in expanded] == [(item.body, item.flag) for item in items]
    for record in expanded:
        assert record.find_property("CLUSTER") == "c1"
    return hash((len(items), *(bool(item.properties) for item in items)))


# Properties and ids


def properties_(_label: str, data: bytes) -> int:
    """Any bytes have properties; what is rendered from them reads the same, and finding one agrees with parsing all.
    Any text is a message id or RemoteProtocolError.
    """
    text = properties.decode(data)
    parsed = properties.parse(text)
    rendered = properties.render(parsed)
    assert properties.parse(rendered) == parsed
    assert properties.parse(properties.decode(properties.encode(rendered))) == parsed
    for name, value in islice(parsed.items(), _FEW):
        if "\ufffd" not in name:
            raw = properties.find(data, name.encode())
            assert raw is not None
            assert properties.decode(raw) == value
    absent = text[:5]
    if "\ufffd" not in absent and absent not in parsed and "\x01" not in absent and "\x02" not in absent:
        assert properties.find(data, absent.encode()) is None
    if not parsed:
        _message_ids(text)
    return hash((len(parsed), data[-1:] == b"\x02"))


def _message_ids(text: str) -> None:
    """Raises RemoteProtocolError unless the text is an id; both kinds may have the same length."""
    key = ids.decode_uniq_key(text)
    assert len(key.ip) in (4, 16)
    try:
        host, offset = ids.decode_offset_message_id(text)
    except RemoteProtocolError:
        return
    assert ids.encode_offset_message_id(host, offset) == text.upper()
    ids.decode_host(host)


# Bodies


def bodies_(label: str, data: bytes) -> int:
    """Any text is a body or RemoteProtocolError, read the same by the typed pass and by the tolerant reader.
    A body is encoded and decoded to itself; so is any value of FastJSON's dialect, without its nulls.
    """
    kind = _BODIES.get(label)
    if kind is None:
        return _json(data)
    if kind is bodies.RegisterBrokerBody:
        return _registration(data)
    body = kind.decode(data)
    _body_comes_back(kind, body)
    try:
        tolerant = kind.decode_tolerant(data)
    except RemoteProtocolError:
        tolerant = body
    assert tolerant == body, f"typed {body}; tolerant {tolerant}"
    if isinstance(body, bodies.ResetOffsetBody):
        assert bodies.ResetOffsetBody.decode(body.encode_for_cpp()) == body
    return hash((label, len(body.encode()).bit_length()))


def _body_comes_back(kind: type[bodies.Body], body: bodies.Body) -> None:
    again = kind.decode(body.encode())
    assert again == body, f"sent {body}; read {again}"


def _json(data: bytes) -> int:
    value = fastjson.loads(data)
    written = fastjson.dumps(value)
    assert fastjson.dumps(fastjson.loads(written)) == written
    assert fastjson.dumps(fastjson.loads_tolerant(data)) == written
    return hash((type(value), len(written).bit_length()))


def _registration(data: bytes) -> int:
    bodies.body_crc32(data)
    shape = 0
    for version in (36, 409, 413):
        body = bodies.RegisterBrokerBody.decode(data, version)
        _body_comes_back(bodies.RegisterBrokerBody, body)
        shape = hash(
            (shape, len(body.topic_config_serialize_wrapper.topic_config_table), body.filter_server_list is None)
        )
    return shape


# Filters


# What a property may be: numbers of each kind, what is nearly one, text, and more digits than any number needs.
_VALUES = ("5", "-1", "10.5", "x", "it's", "true", "", " 7 ", "NaN", "0x1p3", "1_0", "9" * 20, "9" * 5000, "\ud83d")


def filters(_label: str, data: bytes) -> int:
    """Any text is a filter within its bounds, or InvalidFilter that names a column of it and stays short.
    A filter answers for any properties with a truth, the same one each time, and asks for no name that it does not say.
    """
    text = data.decode("utf-8", "surrogateescape")
    try:
        wanted = compile_filter(text)
    except InvalidFilter as exc:
        _points_into(text, exc)
        raise
    assert len(text) <= MAX_LENGTH
    assert depth_of(parse(text)) <= MAX_DEPTH
    assert len(wanted.names) <= MAX_NODES
    answers = [wanted.matches({})]
    names = sorted(wanted.names)
    for first in range(len(_VALUES)):
        given = {name: _VALUES[(first + at) % len(_VALUES)] for at, name in enumerate(names)}
        # A name that is not there would be a KeyError.
        answers.append(wanted.selects(given.__getitem__))
        assert answers[-1] is wanted.matches(given)
    return hash((*answers, len(names)))


def _points_into(text: str, refusal: InvalidFilter) -> None:
    assert 1 <= refusal.column <= len(text) + 1, f"column {refusal.column} of {len(text)} characters"
    assert len(str(refusal)) < 200


# Policies of users


def policies(label: str, data: bytes) -> int:
    """Any text is a policy, resource, source or file of users, or is refused in a sentence that stays short.
    Policies are told and read to the same; whatever is asked, at most one entry decides, and nobody else's name counts.
    """
    try:
        return _policies(label, data)
    except Refused as refused:
        _is_short(refused)
        raise


def _is_short(refused: Refused) -> None:
    assert len(refused.remark) < 500


def _policies(label: str, data: bytes) -> int:
    if label == "resource":
        return _resource(data.decode("utf-8", "replace"))
    if label == "source":
        address = address_of(data.decode("utf-8", "replace"))
        return 0 if address is None else address.version
    if label == "file":
        accounts = UsersFile(Path("users.json"), Vault(Path("/nowhere/users.key"))).read(data)
        return hash((len(accounts.users), len(accounts.policies)))
    acl = bodies.AclInfo.decode(data)
    name, found = user_of(acl.subject), policies_of(acl.policies)
    again = bodies.AclInfo.decode(acl_info(name, found).encode())
    assert (user_of(again.subject), policies_of(again.policies)) == (name, found)
    entries = [entry for each in found.values() for entry in each]
    for entry in entries[:_FEW]:
        _decided_by_one(found, entry)
    return hash((len(entries), *((entry.resource.kind, entry.resource.match, entry.decision) for entry in entries[:4])))


def _resource(text: str) -> int:
    try:
        resource = Resource.parse(text)
    except ValueError as exc:
        raise Refused(str(exc)) from exc
    assert Resource.parse(str(resource)) == resource
    assert EVERY not in resource.name
    return hash((resource.kind, resource.match))


def _decided_by_one(found: Policies, entry: PolicyEntry) -> None:
    kind = entry.resource.kind or ResourceKind.TOPIC
    address = entry.networks[0].network_address if entry.networks else None
    actions = frozenset(Action) - {Action.ALL}
    decides = deciding(found, Need(kind, entry.resource.name, actions), address)
    # It matches itself, so somebody decides: this one or one that is at least as close, or custom.
    assert decides is not None
    assert decides.resource.covers(kind, entry.resource.name)
    elsewhere = ("b" if entry.resource.name.startswith("a") else "a") + entry.resource.name
    other = deciding(dict.fromkeys(found, (entry,)), Need(kind, elsewhere, actions), address)
    assert other is None or entry.resource.name == ""


# Files of accounts


def accounts(_label: str, data: bytes) -> int:
    """Any file has accounts, or is refused with its line in a sentence that stays short.
    Written anew it has the same accounts, white addresses and version.
    """
    text = data.decode("utf-8", "replace")
    try:
        found = parse_accounts(text, "f")
    except ConfigError as exc:
        _names_its_line(exc)
        raise
    again = parse_accounts(yaml_text.dump(yaml_text.plain(yaml_text.read(text, "f")) or {}), "f")
    assert (again.accounts, again.white, again.version) == (found.accounts, found.white, found.version)
    return hash(
        (len(found.accounts), len(found.white), *((each.admin, len(each.topics)) for each in found.accounts[:4]))
    )


def _names_its_line(refused: ConfigError) -> None:
    source, _, line = refused.source.partition(":")
    assert source == "f"
    assert line.isdecimal()


def addresses(_label: str, data: bytes) -> int:
    """Any text is a list of patterns, or refused. A pattern takes the addresses at its edges, and none beyond them."""
    text = data.decode("utf-8", "replace")
    try:
        whole = Addresses([text])
    except ValueError as exc:
        raise ConfigError(str(exc)) from exc
    patterns = [parse_address(each) for each in whole.texts[:_FEW] if each not in EVERYWHERE]
    for pattern in patterns:
        most = 255 if len(pattern.places) == 4 else 0xFFFF
        for number, edge in enumerate((min, max)):
            taken = tuple(edge(each[number] for each in ranges) for ranges in pattern.places)
            assert pattern.takes(taken)
            if numbers_of(_host(taken)) == taken:  # what IPv6 has for a peer by IPv4 is taken for that
                assert whole.take(_host(taken))
            beyond = taken[0] + (1 if number else -1)
            assert not 0 <= beyond <= most or not pattern.takes((beyond, *taken[1:]))
    return hash(tuple(len(ranges) for pattern in patterns[:4] for ranges in pattern.places))


def _host(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers)) if len(numbers) == 4 else ":".join(f"{number:x}" for number in numbers)


_OF_SENDS = tokens.JSON + tokens.HEADER + tokens.PROPERTY
TARGETS = {
    "frames": Target(frames, tokens.JSON + tokens.HEADER, _repair_frame),
    # Where nothing is compiled, there is nothing to try.
    **({} if _sends is None else {"sends": Target(sends, _OF_SENDS, _repair_frame)}),
    **({} if _pulls is None else {"pulls": Target(pulls, tokens.JSON + tokens.HEADER, _repair_frame)}),
    "headers": Target(headers_, tokens.JSON + tokens.HEADER),
    "records": Target(records, tokens.RECORD + tokens.PROPERTY, _repair_record),
    "bodies": Target(bodies_, tokens.JSON + tokens.BODY),
    "batch": Target(batches, tokens.PROPERTY),
    "properties": Target(properties_, tokens.PROPERTY),
    "filters": Target(filters, tokens.FILTER),
    "policies": Target(policies, tokens.JSON + tokens.POLICY),
    "accounts": Target(accounts, tokens.ACCOUNT + tokens.ADDRESS),
    "addresses": Target(addresses, tokens.ADDRESS),
}
