"""Decisions in etcd, for any number of controllers: one of them leads, all of them know everything.

    /pyromq/group1/leader            {"id":"n0","address":"10.0.0.1:9878"}, with a lease: gone if it is not renewed
    /pyromq/group1/groups/broker-a   {"by":"n0","term":5210,"n":3,"group":{"cluster":"c","name":"broker-a",…}}

The revision that created the leader's key is its term. A decision is one transaction that writes a group only if that
key still has that revision, and the group the one it was computed from. So a controller that was deposed without
knowing it writes nothing, and neither does one that decided on an old state, however long its request was under way.

A leader takes its lease to end a tenth earlier than etcd does, counted from when it asked for it: it has stopped before
another can begin, by a clock that goes on while the machine is suspended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pyromq.errors import ConfigError, NotDecided, NotLeader
from pyromq.remoting import split_addresses

from .etcd_seen import Known, SeenFile, went_back
from .etcd_view import BACK_WORDS, Address, EtcdView, Record, is_own
from .gateway import EtcdError, EtcdUnreachable, Gateway, changed_at, created_at, delete, get, put

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .config import ControllerConfig
    from .decisions import Peer
    from .gateway import KeyValue
    from .replicas import Event, Group

logger = logging.getLogger(__name__)

# Decisions on the way to etcd. A lease is renewed beside them and must not queue up behind a thousand.
_AT_ONCE = 16
_PAUSE = 1.0
_NOT_LEADER = "The controller is not in leader state"


class _Held:
    """This controller's lease with the leader's key. `until` is when it stops to lead unless it renews."""

    def __init__(self, lease: int, term: int, until: float) -> None:
        self.lease = lease
        self.term = term
        self.until = until
        self.lost = asyncio.Event()


class _Writing(NamedTuple):
    """A decision on its way: it leads from the group of these revisions to the one `after`."""

    held: _Held
    name: str
    known: Known
    after: Group | None
    done: asyncio.Future[Group | None]


def seconds() -> float:
    """Seconds that go on while the machine is suspended, where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Etcd:
    """Keeps decisions under `prefix`. `lease` is for how many seconds a leader is leader without renewing."""

    def __init__(
        self,
        gateway: Gateway,
        me: Peer,
        peers: Sequence[Peer],
        *,
        prefix: str,
        lease: float,
        seen: SeenFile,
        clock: Callable[[], float] = seconds,
    ) -> None:
        self.led: Callable[[], None] | None = None
        self._gateway = gateway
        self._me = me
        self._peers = peers
        self._lease = math.ceil(lease)
        self._seen_file = seen
        self._clock = clock
        self._view = EtcdView(gateway, me, prefix=prefix, lease=self._lease)
        self._view.leader_seen = self._leader_seen
        # What is known of the leader holds until then.
        self._in_touch_until = 0.0
        self._held: _Held | None = None
        self._was_leader = False
        self._vacant = asyncio.Event()
        self._numbers = itertools.count(1)
        self._under_way: set[str] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def groups(self) -> Mapping[str, Group]:
        return self._view.groups

    @property
    def is_leader(self) -> bool:
        held = self._held
        return held is not None and not held.lost.is_set() and self._clock() < held.until

    @property
    def leader(self) -> Peer | None:
        if self.is_leader:
            return self._me
        if self._view.leader is None or self._clock() >= self._in_touch_until:
            return None
        # Its own key may outlive its leadership.
        return self._view.leader.peer if self._view.leader.peer != self._me else None

    @property
    def peers(self) -> Sequence[Peer]:
        return self._peers

    async def decide(self, event: Event) -> Group | None:
        name, held = event.broker_name, self._held
        if not self.is_leader or held is None or self._tasks is None:
            raise NotLeader(_NOT_LEADER)
        if name in self._under_way:
            raise NotDecided(f"another decision on {name} is under way")
        done: asyncio.Future[Group | None] = asyncio.get_running_loop().create_future()
        # Nobody may be left to see how it ended.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        before = self._view.groups.get(name)
        # What the decision was computed from, now: it may have changed when its turn comes.
        known = self._view.known[name] if before is not None else Known(0, 0)
        writing = _Writing(held, name, known, event.applied_to(before), done)
        self._under_way.add(name)
        self._tasks.create_task(self._write(writing), name=f"decide on {name}")
        return await asyncio.shield(done)

    async def run(self, ready: Callable[[], None]) -> None:
        async with self._gateway:
            try:
                await self._begin()
                ready()
                async with asyncio.TaskGroup() as self._tasks:
                    self._tasks.create_task(self._view.follow(), name="follow etcd")
                    self._tasks.create_task(self._lead(), name="lead")
                    self._tasks.create_task(self._remember(), name="remember etcd's state")
            except BaseExceptionGroup as group:
                # One reason is enough, and several tasks may have found it.
                raise group.exceptions[0] from None
            finally:
                await self._resign()

    async def _begin(self) -> None:
        """Read everything. ConfigError if etcd refuses that, or knows less than before."""
        seen = await asyncio.to_thread(self._seen_file.read)
        while True:
            try:
                await self._view.read_groups()
                break
            except EtcdUnreachable as exc:
                await self._view.trouble_with(exc)
            except EtcdError as exc:
                raise ConfigError(f"etcd at {self._gateway.endpoint} refuses: {exc}") from exc
        self._view.fine()
        if seen is not None:
            problem = went_back(seen, self._view.revision, self._view.known, self._view.groups)
            if problem is not None:
                raise ConfigError(
                    f"etcd at {self._gateway.endpoint} has an older state than this controller has seen: {problem}. "
                    f"{BACK_WORDS}, or remove {self._seen_file.path} to accept the older state"
                )
        logger.info(
            "etcd read prefix=%s groups=%d revision=%d",
            self._view.prefix.decode(),
            len(self._view.groups),
            self._view.revision,
        )

    # Leading

    async def _lead(self) -> None:
        while True:
            try:
                await self._until_vacant()
                held = await self._campaign()
                if held is None:
                    continue
                self._begin_term(held)
                await self._keep(held)
            except (EtcdUnreachable, EtcdError) as exc:
                await self._view.trouble_with(exc)
            finally:
                self._look()

    async def _until_vacant(self) -> None:
        """Wait until there is no leader. Asks now and then, since a member that is cut off tells no changes."""
        while True:
            self._vacant.clear()
            sent = self._clock()
            vacant = await self._view.ask_for_leader() is None
            self._view.fine()
            self._in_touch_until = sent + self._lease
            if vacant:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease / 3):
                    await self._vacant.wait()

    async def _campaign(self) -> _Held | None:
        """Try to become the leader; None if another one was faster. The groups are those of the term's first moment."""
        sent = self._clock()
        granted = await self._gateway.grant(self._lease, self._view.haste)
        value = msgspec.json.encode(Address(*self._me))
        try:
            reply = await self._view.agreed(
                self._gateway.transact(
                    [created_at(self._view.leader_key, 0)],
                    [put(self._view.leader_key, value, granted.id)],
                    [get(self._view.leader_key)],
                    self._view.patience,
                )
            )
            if reply.succeeded:
                term = reply.header.revision
                await self._view.read_groups(term)
                return _Held(granted.id, term, self._end_of(granted.ttl, sent))
        except BaseException:
            await self._give_back(granted.id)
            raise
        await self._give_back(granted.id)
        self._view.take_leader(reply.found(0), reply.header.revision)
        return None

    def _begin_term(self, held: _Held) -> None:
        self._held = held
        if not self._view.leads(held.term):
            held.lost.set()
        self._look()

    def _leader_seen(self, kv: KeyValue | None) -> None:
        held = self._held
        if held is not None and (kv is None or kv.create_revision != held.term):
            held.lost.set()
        if kv is None:
            self._vacant.set()
        self._look()

    async def _keep(self, held: _Held) -> None:
        """Renew the lease until it is lost for good. While etcd does not answer it may still be there."""
        sent = held.until - self._end_of(self._lease, 0)
        while not held.lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(sent + self._lease / 3 - self._clock(), 0)):
                    await held.lost.wait()
                    return
            tried = self._clock()
            try:
                renewed = await self._gateway.renew(held.lease, self._view.haste)
                if not renewed.ttl:
                    held.lost.set()
                    logger.warning("the lease in etcd ended before it was renewed")
                    return
                # The lease alone does not say that etcd is what it was, or that nobody removed the key.
                await self._view.ask_for_leader()
                if not self.is_leader:
                    # Nobody led meanwhile, but a decision may have been written whose answer never came.
                    await self._view.read_groups()
            except (EtcdUnreachable, EtcdError) as exc:
                await self._view.trouble_with(exc)
                self._look()
                continue
            sent = tried
            held.until = self._end_of(renewed.ttl, sent)
            self._view.fine()
            self._look()

    def _end_of(self, ttl: float, sent: float) -> float:
        """When a lease of so many seconds ends for us that was asked for at `sent`."""
        return sent + ttl * 0.9

    def _look(self) -> None:
        """Tell if this controller began or ceased to lead, now and when its lease ends."""
        leads = self.is_leader
        if leads and self._held is not None:
            left = self._held.until - self._clock()
            asyncio.get_running_loop().call_later(left + 0.001, self._look)
        if leads == self._was_leader:
            return
        self._was_leader = leads
        if leads and self._held is not None:
            logger.info("this controller leads now term=%d groups=%d", self._held.term, len(self._view.groups))
        else:
            logger.warning("this controller leads no longer")
        if self.led is not None:
            self.led()

    async def _resign(self) -> None:
        """Let another controller lead at once instead of after the lease."""
        held, self._held, self._tasks = self._held, None, None
        self._was_leader = False
        if held is not None and not held.lost.is_set():
            await self._give_back(held.lease)

    async def _give_back(self, lease: int) -> None:
        with contextlib.suppress(EtcdUnreachable, EtcdError):
            await self._gateway.revoke(lease, _PAUSE)

    # Deciding

    async def _write(self, writing: _Writing) -> None:
        done = writing.done
        try:
            async with self._places:
                group = await self._written(writing)
            done.set_result(group)
        except (NotDecided, NotLeader) as exc:
            done.set_exception(exc)
        finally:
            if not done.done():
                done.set_exception(NotDecided("the controller is stopping"))
            self._under_way.discard(writing.name)

    async def _written(self, writing: _Writing) -> Group | None:
        """Write a decision, at another member if one does not answer. It knows its own writing when it finds it."""
        held, name, known, after, _ = writing
        key = self._view.key_of(name)
        record = None
        if after is not None:
            record = Record(by=self._me.id, term=held.term, n=next(self._numbers), group=after)
        change = put(key, msgspec.json.encode(record)) if record is not None else delete(key)
        compare = [created_at(self._view.leader_key, held.term), changed_at(key, known.changed)]
        give_up = self._clock() + self._lease
        repeated = False
        while True:
            self._must_lead(held)
            try:
                reply = await self._view.agreed(
                    self._gateway.transact(
                        compare, [change], [get(self._view.leader_key), get(key)], self._view.patience
                    )
                )
                break
            except EtcdError as exc:
                logger.error("etcd refuses a decision on %s: %s", name, exc)
                raise NotDecided(f"etcd refuses: {exc}") from exc
            except EtcdUnreachable as exc:
                repeated = True
                await self._view.trouble_with(exc)
                if self._clock() >= give_up:
                    raise NotDecided(f"etcd does not answer: {exc}") from exc
        revision = reply.header.revision
        if not reply.succeeded:
            found = reply.found(1)
            self._view.take_leader(reply.found(0), revision)
            if found is None:
                self._view.forget(name, revision)
            else:
                self._view.take(found)
            if not (repeated and is_own(found, record)):
                self._must_lead(held)
                raise NotDecided(f"{name} changed meanwhile")
        elif after is None:
            self._view.forget(name, revision)
        elif name not in self._view.known or self._view.known[name].changed < revision:
            self._view.put(name, after, Known(known.created or revision, revision))
        # Whoever leads now knows it, too. It is for them to tell what follows from it.
        self._must_lead(held)
        return after

    def _must_lead(self, held: _Held) -> None:
        if held is not self._held or not self.is_leader:
            raise NotLeader(_NOT_LEADER)

    async def _remember(self) -> None:
        """Keep on disk how far etcd was, a second later at most, to notice at a start if it went back."""
        while True:
            await self._view.news.wait()
            self._view.news.clear()
            try:
                await asyncio.to_thread(self._seen_file.write, self._view.seen())
            except OSError as exc:
                logger.warning("%s not written: %s", self._seen_file.path, exc.strerror)
            await asyncio.sleep(_PAUSE)


def in_etcd(config: ControllerConfig, me: Peer, peers: Sequence[Peer]) -> Etcd:
    """Decisions kept in the etcd that the settings name. ConfigError if a certificate is unusable."""
    gateway = Gateway(
        split_addresses(config.etcd_endpoints),
        tls=_tls(config) if config.etcd_tls else None,
        user=config.etcd_user,
        password=config.etcd_password,
    )
    seen = SeenFile(Path(config.store_path))
    return Etcd(gateway, me, peers, prefix=config.etcd_keys, lease=config.etcd_lease / 1000, seen=seen)


def _tls(config: ControllerConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=config.etcd_ca_path or None)
        if config.etcd_cert_path:
            context.load_cert_chain(config.etcd_cert_path, config.etcd_key_path)
    except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
        raise ConfigError(f"the certificates for etcd cannot be used: {exc}") from exc
    return context
