"""What is wrong with controllers and broker groups, and what to do about it. Decides only; `controllers` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import NoPermission

from .controllers import MASTER
from .doctor_rules import CREDENTIALS, Finding, Health

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .controllers import Controller, FailOver, Group, Member

# An in-sync broker may be this many bytes behind its master for a moment; senders wait for it.
FAR_BEHIND = 16 << 20


def no_controller(controllers: Sequence[str], reason: str) -> Finding:
    """None of them answers."""
    return Finding(
        Health.FAIL,
        f"controllers {', '.join(controllers)}",
        f"none can be reached: {reason}",
        "start them: until then no master is replaced, and PyroMQ's masters stop taking messages",
    )


def examined(found: FailOver) -> list[Finding]:
    """Everything about one group of controllers and the brokers under it."""
    findings = controllers(found)
    findings += [
        Finding(
            Health.FAIL,
            f"controller {each.server}",
            f"leads, but does not tell its groups: {each.error}",
            CREDENTIALS if isinstance(each.error, NoPermission) else "restart it",
        )
        for each in found.missing
        if each.server == found.leader
    ]
    for group in found.groups:
        findings += broker_group(group)
    return findings


def problems(findings: Sequence[Finding]) -> list[str]:
    """What is wrong, as sentences."""
    return [f"{each.what}: {each.found}; {each.to_do}" for each in findings if each.status is not Health.OK]


# Controllers


def controllers(found: FailOver) -> list[Finding]:
    rows = found.controllers
    there = [each for each in rows if each.role is not None]
    findings = [_silent(each) for each in rows if each.role is None]
    leaders = sorted({each.leader for each in there if each.leader})
    what = "controllers"
    if len(leaders) > 1:
        said = "; ".join(f"{each.controller} says {each.leader}" for each in there if each.leader)
        to_do = "see that they reach each other, and that all have the same peers in their settings"
        findings.append(Finding(Health.FAIL, what, f"disagree about the leader: {said}", to_do))
    if not leaders:
        found_ = f"have no leader: {len(there)} of {len(rows)} can be reached, and no master is replaced meanwhile"
        findings.append(Finding(Health.FAIL, what, found_, "start the others: a leader needs more than half of them"))
    if len(rows) % 2 == 0 and not found.shared:
        more, survive = len(rows), (len(rows) - 1) // 2
        found_ = f"are {more}, an even number: {survive} may fail, as with {more - 1}"
        findings.append(Finding(Health.WARN, what, found_, "run one more, or one less"))
    if not findings:
        said = f"{len(rows)} answer, " if len(rows) > 1 else ""
        findings.append(Finding(Health.OK, what, f"{said}{found.leader} leads"))
    return findings


def _silent(row: Controller) -> Finding:
    name = f"controller {row.id} {row.controller}" if row.id else f"controller {row.controller}"
    return Finding(Health.WARN, name, row.problem or "does not answer", "start it, or see why it cannot be reached")


# Broker groups


def broker_group(group: Group) -> list[Finding]:
    what = f"fail-over of {group.broker}"
    members, wrong = group.members, []
    if group.master is None:
        wrong.append(_without_master(group, what, "it has no master, so it takes no messages"))
    elif not group.member(group.master).alive:
        found = f"its master, broker {group.master} at {group.master_address}, is not alive, and nobody has taken over"
        wrong.append(_without_master(group, what, found))
    wrong += [_not_alive(each, what) for each in members if not each.alive and each.id != group.master]
    if group.master is not None and len(group.in_sync) == 1 < len(members):
        found = f"only broker {group.in_sync[0]} is in sync, of {len(members)}: nobody can take over if it fails"
        to_do = "see that the others run and reach their master; a new one comes in when it has caught up"
        wrong.append(Finding(Health.WARN, what, found, to_do))
    for each in members:
        wrong += _roles(group, each, what)
        wrong += _lag(each, what)
    wrong += _epochs(group, what)
    if wrong:
        return wrong
    in_sync = ", ".join(map(str, group.in_sync))
    return [Finding(Health.OK, what, f"broker {group.master} is master in epoch {group.epoch}, in sync: {in_sync}")]


def _in_doubt(group: Group) -> tuple[list[int], list[int]]:
    """Who is not elected because it may lack messages, and who is away and may have them."""
    doubtful = [each.id for each in group.members if each.doubtful and each.alive and each.in_sync]
    return doubtful, [each.id for each in group.members if each.in_sync and not each.alive]


def _without_master(group: Group, what: str, found: str) -> Finding:
    doubtful, away = _in_doubt(group)
    if not doubtful or not away:
        return Finding(Health.FAIL, what, found, _ways_back(group))
    lacking, others = " and ".join(map(str, doubtful)), " and ".join(map(str, sorted(away)))
    why = (
        f"broker {lacking} may lack acknowledged messages, since its machine or disk failed, and broker {others}, "
        "which may have them, is not alive"
    )
    to_do = (
        f"start broker {others}; if it is lost for good: pyromq controller elect {group.broker} {doubtful[0]}, and "
        f"what only broker {others} had is lost"
    )
    return Finding(Health.FAIL, what, f"{found}: {why}", to_do)


def _ways_back(group: Group) -> str:
    able = " or ".join(map(str, group.in_sync)) or "any"
    return (
        f"start broker {able}, which has all messages; if it is lost for good, set enableElectUncleanMaster=true at "
        "the controllers: what only it had is lost"
    )


def _not_alive(member: Member, what: str) -> Finding:
    to_do = f"start it; if it is gone for good: pyromq controller clean {member.broker} {member.id}"
    return Finding(Health.WARN, what, f"broker {member.id} at {member.address} is not alive", to_do)


def _roles(group: Group, member: Member, what: str) -> list[Finding]:
    """A broker and the controller may differ for a moment, right after an election."""
    if member.acts_as == MASTER and member.id != group.master:
        named = f"names broker {group.master}" if group.master is not None else "names nobody"
        found = f"broker {member.id} at {member.address} claims to be master, but the controller {named}"
        to_do = "if it stays so, restart that broker: it may not reach its controllers; what it takes now can be lost"
        return [Finding(Health.FAIL, what, found, to_do)]
    if member.acts_as is not None and member.acts_as != MASTER and member.id == group.master:
        found = f"broker {member.id} at {member.address} was elected master and does not act as one"
        return [Finding(Health.FAIL, what, found, "if it stays so, look at its log: it may not reach its controllers")]
    if member.doubtful and all(_in_doubt(group)):
        return []  # said already
    if member.problem is not None and member.alive:
        to_do = "see that its master runs and can be reached; its log says more"
        return [Finding(Health.WARN, what, f"broker {member.id} at {member.address}: {member.problem}", to_do)]
    return []


def _lag(member: Member, what: str) -> list[Finding]:
    if not member.in_sync or member.behind is None or member.behind < FAR_BEHIND:
        return []
    found = f"broker {member.id} counts as in sync and is {member.behind} bytes behind: senders wait for it"
    return [Finding(Health.WARN, what, found, "look at its disk and the line to its master")]


def _epochs(group: Group, what: str) -> list[Finding]:
    """Where the epochs of a member and of the master differ, although both logs have that part."""
    master = next((each for each in group.members if each.id == group.master and each.epochs), None)
    if master is None:
        return []
    findings = []
    for member in group.members:
        if member is not master and member.epochs and (found := epochs_differ(master, member)):
            to_do = (
                "Apache's 5.5.0 keeps entries of a log that was cut, which is harmless; otherwise the logs may differ: "
                "compare them, and start the wrong one with an empty store"
            )
            findings.append(Finding(Health.WARN, what, found, to_do))
    return findings


def epochs_differ(master: Member, member: Member) -> str | None:
    """The first difference as a sentence. Older epochs go with the files they are in, on each broker on its own."""
    starts = {each.epoch: each.start for each in master.epochs}
    since = max(master.epochs[0].epoch, member.epochs[0].epoch)
    for each in member.epochs:
        if each.epoch < since:
            continue
        if each.epoch not in starts:
            return f"broker {member.id} has epoch {each.epoch} from {each.start}, its master has no such epoch"
        if starts[each.epoch] != each.start:
            there = starts[each.epoch]
            return f"epoch {each.epoch} starts at {each.start} on broker {member.id}, at {there} on its master"
    own = {each.epoch for each in member.epochs}
    for other in master.epochs:
        # It learns an epoch with the first bytes of it.
        if other.epoch >= since and other.epoch not in own and other.start < (member.log_end or 0):
            return f"broker {member.id} lacks epoch {other.epoch}, which starts at {other.start} on its master"
    return None
