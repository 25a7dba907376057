"""What is in etcd, as one controller knows it: read once, then followed by a watch.

Every name goes forward only: whatever comes late, from a slow watch or a slow answer, is older by its revision.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import msgspec

from pyromq.errors import ConfigError

from .decisions import Peer
from .etcd_seen import Known, Seen
from .gateway import EtcdError, EtcdUnreachable, end_of
from .replicas import Group  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .gateway import Change, Gateway, Header, KeyValue

logger = logging.getLogger(__name__)


class _Reply(Protocol):
    @property
    def header(self) -> Header: ...


R = TypeVar("R", bound=_Reply)

# Groups read at once. gRPC carries 4 MiB.
_PAGE = 500
_PAUSE = 0.2
_LONG_PAUSE = 1.0
BACK_WORDS = "Brokers ignore a controller whose epochs are smaller than theirs: restore the newer state"


class Address(msgspec.Struct):
    """The value of the leader's key."""

    id: str
    address: str


class Record(msgspec.Struct, kw_only=True):
    """The value of a group's key: the group, who decided on it last, and by which of its decisions."""

    by: str
    term: int
    n: int
    group: Group


class Leader(NamedTuple):
    peer: Peer
    term: int


class EtcdView:
    """The groups and the leader under `prefix`. `lease` are the seconds after which a leader must be heard again."""

    def __init__(self, gateway: Gateway, me: Peer, *, prefix: str, lease: int) -> None:
        # Called when the leader's key was seen: as it is, or None if there is none.
        self.leader_seen: Callable[[KeyValue | None], None] = lambda kv: None
        self.prefix = prefix.encode()
        self.leader_key = self.prefix + b"leader"
        self.groups: dict[str, Group] = {}
        self.leader: Leader | None = None
        # The revisions of each name, also of those that are gone, so that nothing older comes after them.
        self.known: dict[str, Known] = {}
        self.news = asyncio.Event()
        # How long a member may take; and how long if a lease is at stake and there are other members to ask.
        self.patience = lease * 0.4
        self.haste = lease * (0.2 if gateway.members > 1 else 0.4)
        self._gateway = gateway
        self._me = me
        self._groups_prefix = self.prefix + b"groups/"
        self._leader_changed = 0
        self._cluster = 0
        self._revision = 0
        self._watched = 0
        # What went wrong since all was well; each is logged once.
        self._troubles: set[str] = set()

    @property
    def revision(self) -> int:
        """The newest one that a majority agreed on."""
        return self._revision

    def seen(self) -> Seen:
        """How far etcd is."""
        groups = {
            name: (self.known[name].created, group.master_epoch, group.set_epoch) for name, group in self.groups.items()
        }
        return Seen(revision=max(self._revision, self._watched), groups=groups)

    def key_of(self, name: str) -> bytes:
        return self._groups_prefix + name.encode()

    def leads(self, term: int) -> bool:
        """This controller leads, unless it is known already that it does no longer; says which.

        What the watch still has to tell of earlier leaders is of no interest.
        """
        if self._leader_changed <= term:
            self.leader = Leader(self._me, term)
            self._leader_changed = term
        return self.leader is not None and self.leader.term == term

    async def read_groups(self, revision: int = 0) -> None:
        """Know the groups as of a revision, or as of now."""
        start, end = self._groups_prefix, end_of(self._groups_prefix)
        found: list[KeyValue] = []
        while True:
            reply = await self.agreed(
                self._gateway.read(start, end, revision=revision, limit=_PAGE, timeout=self.patience)
            )
            revision = revision or reply.header.revision
            found += reply.kvs
            if not reply.more:
                break
            start = found[-1].key + b"\0"
        gone = self.groups.keys() - {self._name_of(kv) for kv in found}
        for kv in found:
            self.take(kv)
        for name in gone:
            self.forget(name, revision)
        self._watched = max(self._watched, revision)

    async def ask_for_leader(self) -> KeyValue | None:
        """The leader's key, if there is one, as a majority knows it."""
        reply = await self.agreed(self._gateway.read(self.leader_key, timeout=self.haste))
        found = reply.kvs[0] if reply.kvs else None
        self.take_leader(found, reply.header.revision)
        return found

    async def agreed(self, asked: Awaitable[R]) -> R:
        """An answer that a majority stands behind, so its revision is no smaller than any that was known before."""
        known = self._revision
        reply = await asked
        header = reply.header
        if self._cluster and header.cluster_id != self._cluster:
            raise ConfigError(
                f"etcd at {self._gateway.endpoint} is not the cluster of before: its id is {header.cluster_id:x}, not "
                f"{self._cluster:x}. All controllerEtcdEndpoints must be of one cluster. {BACK_WORDS}"
            )
        if header.revision < known:
            raise ConfigError(
                f"etcd at {self._gateway.endpoint} went back from revision {known} to {header.revision}, as after a "
                f"restore from an old snapshot. {BACK_WORDS}"
            )
        self._cluster = header.cluster_id
        self._revision = max(self._revision, header.revision)
        return reply

    def _name_of(self, kv: KeyValue) -> str:
        return kv.key.removeprefix(self._groups_prefix).decode(errors="replace")

    def take(self, kv: KeyValue) -> None:
        """Know a group as etcd has it, unless something newer is known."""
        name = self._name_of(kv)
        if name in self.known and kv.mod_revision <= self.known[name].changed:
            return
        try:
            group = msgspec.json.decode(kv.value, type=Record).group
        except (msgspec.DecodeError, msgspec.ValidationError) as exc:
            raise ConfigError(
                f"{kv.key.decode(errors='replace')} in etcd is not what a controller wrote: {exc}"
            ) from exc
        self.put(name, group, Known(kv.create_revision, kv.mod_revision))

    def put(self, name: str, group: Group, known: Known) -> None:
        self.groups[name] = group
        self.known[name] = known
        self.news.set()

    def forget(self, name: str, revision: int) -> None:
        known = self.known.get(name)
        if known is None or known.changed < revision:
            self.groups.pop(name, None)
            self.known[name] = Known(0, revision)
            self.news.set()

    def take_leader(self, kv: KeyValue | None, revision: int) -> None:
        """Know who leads as of a revision, unless something newer is known."""
        if revision < self._leader_changed:
            return
        self._leader_changed = revision
        before, self.leader = self.leader, None
        if kv is not None:
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                said = msgspec.json.decode(kv.value, type=Address)
                self.leader = Leader(Peer(said.id, said.address), kv.create_revision)
        if self.leader != before and self.leader is not None and self.leader.peer != self._me:
            logger.info("controller %s at %s leads now", *self.leader.peer)
        self.leader_seen(kv)

    # The watch

    async def follow(self) -> None:
        while True:
            try:
                if await self._watch():
                    logger.warning("etcd compacted its history beyond what was read of it; reading all of it again")
                    await self.read_groups()
                    await self.ask_for_leader()
            except (EtcdUnreachable, EtcdError) as exc:
                await self.trouble_with(exc)

    async def _watch(self) -> bool:
        """Follow what changes; returns True if changes were missed, since they are no longer known."""
        changes = self._gateway.watch(self.prefix, end_of(self.prefix), self._watched + 1, self.patience)
        async with contextlib.aclosing(changes) as replies:
            async for reply in replies:
                if reply.compact_revision:
                    return True
                if reply.canceled:
                    raise EtcdError(0, reply.cancel_reason or "the watch was cancelled")
                for change in reply.events:
                    self._changed(change)
        return False

    def _changed(self, change: Change) -> None:
        kv = change.kv
        self._watched = max(self._watched, kv.mod_revision)
        if kv.key == self.leader_key:
            self.take_leader(kv if change.type == "PUT" else None, kv.mod_revision)
        elif not kv.key.startswith(self._groups_prefix):
            return
        elif change.type == "PUT":
            self.take(kv)
        else:
            self.forget(self._name_of(kv), kv.mod_revision)

    async def trouble_with(self, exc: Exception) -> None:
        """Log it once, and pause a little before the next try."""
        text = str(exc)
        if text not in self._troubles:
            self._troubles.add(text)
            logger.warning("etcd: %s; trying again", text)
        await asyncio.sleep(_LONG_PAUSE if isinstance(exc, EtcdError) else _PAUSE / self._gateway.members)

    def fine(self) -> None:
        if self._troubles:
            self._troubles.clear()
            logger.info("etcd answers again at %s", self._gateway.endpoint)


def is_own(found: KeyValue | None, record: Record | None) -> bool:
    """Whether etcd has what an earlier try wrote; None is a group that was removed."""
    if found is None or record is None:
        return found is None and record is None
    said = msgspec.json.decode(found.value, type=Record)
    return (said.by, said.term, said.n) == (record.by, record.term, record.n)
