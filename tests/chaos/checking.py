"""What must be true once a group is whole again: the logs against what clients were told."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tests.chaos.group import until
from tests.chaos.load import Place

from pyromq.client import TxState
from pyromq.errors import CorruptRecord
from pyromq.protocol.record import decode_record
from pyromq.store.metadata.epochs import EPOCH_FILE
from pyromq.store.scan import scan

if TYPE_CHECKING:
    from tests.chaos.group import Group
    from tests.chaos.load import Records
    from tests.chaos.server import Member

EQUAL_WITHIN = 60.0
CONSUMED_WITHIN = 90.0


class Stored(NamedTuple):
    place: Place
    body: bytes


@dataclass(frozen=True, slots=True)
class Log:
    """The commit log of a broker, read from its files."""

    by_offset: dict[int, Stored]
    by_place: dict[Place, bytes]


def files_of(member: Member) -> dict[int, bytes]:
    """The files of a log by their first offset, without those that were made in advance."""
    paths = sorted((member.folder / "commitlog").iterdir())
    files = {int(path.name): path.read_bytes() for path in paths if path.name.isdecimal()}
    return {start: data for start, data in files.items() if any(data)}


def read_log(files: dict[int, bytes]) -> Log:
    log = Log({}, {})
    for start, data in files.items():
        for record in scan(data, 0, start, check_crc=True):
            at = record.physical_offset - start
            place = Place(record.topic, record.queue_id, record.queue_offset)
            body = decode_record(data[at : at + record.size]).body
            log.by_offset[record.physical_offset] = Stored(place, body)
            log.by_place[place] = body
    return log


def epochs_of(member: Member) -> list[tuple[int, int]]:
    """The epochs of a log, each with its start."""
    text = (member.folder / EPOCH_FILE).read_text()
    pairs = (line.partition("-") for line in text.splitlines()[2:])
    return [(int(epoch), int(start)) for epoch, _, start in pairs]


async def check(group: Group, records: Records) -> list[str]:
    """Wait until the logs are equal and everything is consumed; gives what is wrong."""
    await _equal(group)
    violations = [*records.changed]
    master_files = files_of(group.members[0])
    try:
        log = read_log(master_files)
    except CorruptRecord as exc:
        return [*violations, f"the log of {group.members[0].name} is damaged: {exc}"]
    violations += acknowledged_and_gone(records, log)
    violations += seen_and_gone(records, log)
    violations += out_of_order(records)
    violations += taken_by_others(records, epochs_of(group.members[0]), await group.masters())
    if violations:
        return violations
    try:
        await until(lambda: not records.missing(), CONSUMED_WITHIN, lambda: f"never consumed: {records.missing()[:20]}")
    except AssertionError as exc:
        violations.append(str(exc))
    violations += [
        f"rolled back and consumed: {body!r}"
        for body, state in records.decided.items()
        if state is TxState.ROLLBACK and body in records.bodies["paid"]
    ]
    return violations + records.changed


async def _equal(group: Group) -> None:
    """Logs and epochs of all brokers become equal. Masters also write on their own, so that may take a few looks."""
    first, *others = group.members

    def unlike() -> str | None:
        for other in others:
            if epochs_of(other) != epochs_of(first):
                return f"epochs of {first.name} {epochs_of(first)}, of {other.name} {epochs_of(other)}"
            ours, theirs = files_of(first), files_of(other)
            if ours != theirs:
                common = [start for start in ours if start in theirs and ours[start] != theirs[start]]
                at = [
                    start + next(i for i, (a, b) in enumerate(zip(ours[start], theirs[start], strict=True)) if a != b)
                    for start in common
                ]
                return f"logs of {first.name} {list(ours)} and {other.name} {list(theirs)} differ at {at}"
        return None

    await until(lambda: unlike() is None, EQUAL_WITHIN, lambda: f"not equal: {unlike()}")


def _short(what: object) -> str:
    """`what`, with the ends of long bodies left out."""
    return re.sub("x{8,}", "xx...", repr(what))


def acknowledged_and_gone(records: Records, log: Log) -> list[str]:
    """Every acknowledged message lies where its broker said."""
    gone = []
    for each in records.acknowledged:
        stored = log.by_offset.get(each.log_offset)
        if stored is None or stored.body != each.body:
            gone.append(f"acknowledged and gone: {_short(each)}; there is {_short(stored)}")
        elif stored.place.offset != each.offset:
            gone.append(f"acknowledged as {each.offset} of its queue: {_short(each)}; it is {_short(stored)}")
    return gone


def seen_and_gone(records: Records, log: Log) -> list[str]:
    """What a consumer saw is there, and still the same."""
    return [
        f"consumed and gone: {_short(Stored(place, body))}; there is {_short(log.by_place.get(place))}"
        for place, body in records.consumed.items()
        if log.by_place.get(place) != body
    ]


def out_of_order(records: Records) -> list[str]:
    """Each queue of the plain topic has one producer, which sends the next message after an answer."""
    wrong = []
    last: dict[int, int] = {}
    for each in records.acknowledged:
        if each.topic == "plain":
            if each.offset <= last.get(each.queue_id, -1):
                wrong.append(f"out of order: {_short(each)} after offset {last[each.queue_id]}")
            last[each.queue_id] = each.offset
    return wrong


def taken_by_others(records: Records, epochs: list[tuple[int, int]], chosen: dict[int, str]) -> list[str]:
    """In each epoch only the broker that the controller made master has acknowledged anything."""
    starts = [start for _, start in epochs]
    wrong = []
    for each in records.acknowledged:
        epoch = epochs[bisect.bisect_right(starts, each.log_offset) - 1][0]
        if chosen[epoch] != each.broker:
            wrong.append(f"{_short(each)} was acknowledged by {each.broker} in epoch {epoch} of {chosen[epoch]}")
    return wrong
