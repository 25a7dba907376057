"""The sender: gets a prepared message to a broker, in as many attempts as it takes.

In the usual case a send costs no task and no timer: the frame is filled into a form and written, and the connection
hands the reply to the waiting caller. `Submitted` (background_sends.py) is for callers that do not wait.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pyromq.errors import (
    BrokerError,
    PyroMQError,
    RemoteProtocolError,
    RequestTimeout,
    RouteNotFound,
    broker_error,
)
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import INNER_PRODUCER_GROUP
from pyromq.remoting.calls import next_opaque

from ..hooks import HookList, SendContext
from ..names import check_topic_for_send
from .attempts import FAILURES, Attempts
from .faults import LatencyFaults
from .outgoing import with_properties
from .producer_settings import ProducerSettings
from .selectors import Turns
from .send_frames import Form
from .send_result import DEFAULT_REGION, STATUS_BY_CODE, SendResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection

    from ..client import Client
    from ..routes import PublishInfo
    from .outgoing import Outgoing

_now = time.monotonic

# Seconds between two questions for the route of a topic that has no master.
_NO_MASTER_PAUSE = 0.1


class Target:
    """A topic, ready for sending. `topic` is its wire name."""

    __slots__ = ("_make_form", "forms", "info", "topic", "turns")

    def __init__(
        self, topic: str, info: PublishInfo, make_form: Callable[[MessageQueue], Form], start: int | None
    ) -> None:
        self.topic = topic
        self.info = info
        self.forms = [make_form(queue) for queue in info.queues]
        self.turns = Turns([queue.broker_name for queue in info.queues], start)
        self._make_form = make_form

    @property
    def queues(self) -> list[MessageQueue]:
        """As the user knows them."""
        return [form.shown for form in self.forms]

    def form_of(self, queue: MessageQueue) -> Form:
        """The form for a queue that the user names; it need not be in the route."""
        for form in self.forms:
            if form.shown == queue or form.queue == queue:
                return form
        return self._make_form(MessageQueue(broker_name=queue.broker_name, queue_id=queue.queue_id, topic=self.topic))


class Sender:
    """Sends for one group of one client. Group names are those on the wire, topic names the user's."""

    def __init__(
        self,
        client: Client,
        group: str,
        settings: ProducerSettings | None = None,
        hooks: HookList | None = None,
        *,
        vip: bool = True,
    ) -> None:
        self.settings = settings or ProducerSettings()
        self.group = group
        self.faults = LatencyFaults() if self.settings.fault_tolerance else None
        self._client = client
        self._routes = client.routes
        self._calls = client.calls
        self.remoting = client.remoting
        self.tasks = client.tasks
        self._loop = asyncio.get_running_loop()
        self._hooks = hooks or HookList()
        self.watched = self._hooks.watch_sends
        self._vip = vip
        self._targets: dict[str, Target] = {}

    # Where to

    def topics(self) -> set[str]:
        """The topics that were sent to, as on the wire."""
        return {target.topic for target in self._targets.values()}

    def known_target(self, topic: str) -> Target | None:
        """The known topic, without asking; None if its route must be requested."""
        target = self._targets.get(topic)
        if target is not None and target.info is self._routes.cached_publish_info(target.topic):
            return target
        return None

    async def target(self, topic: str, timeout: float) -> Target:
        """A topic to send to. Raises InvalidMessage for an impossible name, or why no broker was found."""
        wire = self._client.namespace.wrap(topic)
        check_topic_for_send(wire)
        info = await self._publish_info(wire, timeout)
        known = self._targets.get(topic)
        if known is None or known.info is not info:
            # Even after the queues of a topic changed, the next message goes to the next of them.
            start = None if known is None else known.turns.position
            known = self._targets[topic] = Target(wire, info, self._form, start)
        return known

    async def _publish_info(self, topic: str, timeout: float) -> PublishInfo:
        """Where to send, waiting for a master where a group is about to have one."""
        deadline = _now() + timeout
        while True:
            try:
                return await self._routes.publish_info(topic, self.settings.default_queues, max(deadline - _now(), 0.0))
            except RouteNotFound:
                if not self._routes.awaits_master(topic) or _now() + _NO_MASTER_PAUSE >= deadline:
                    raise
            await asyncio.sleep(_NO_MASTER_PAUSE)

    def choose(self, target: Target, last_broker: str | None = None) -> Form:
        """The next queue, on a different broker than the last one if possible."""
        turns = target.turns
        if self.faults is not None:
            return target.forms[turns.healthy(self.faults, last_broker, _now())]
        return target.forms[turns.next() if last_broker is None else turns.avoiding(last_broker)]

    # Sending

    async def send(
        self,
        outgoing: Outgoing,
        target: Target,
        only: Form | None,
        timeout: float,
        attempts: Attempts | None = None,
        *,
        first: Form | None = None,
    ) -> SendResult:
        """Send, to the queue of `only` or to those that come next, beginning with `first`.

        Goes on with `attempts` if some were made.
        """
        if attempts is None:
            attempts = Attempts(self.settings, target.topic, timeout, _now(), only=only is not None)
        form = only or first
        while True:
            if form is None:
                form = self.choose(target, attempts.last_broker)
            if attempts.tried and attempts.has_failed_at(form.broker):
                await self._await_master(form, attempts)
            began = _now()
            limit = attempts.begin(began)
            attempts.address = self._routes.master(form.broker)
            try:
                result = await self._attempt(outgoing, form, limit)
            except FAILURES as exc:
                verdict = self.failed(attempts, form, exc)
            else:
                if self.faults is not None and only is None:
                    self.faults.answered(form.broker, _now() - began, _now())
                verdict = attempts.stored(form.broker, result)
            if verdict is not None:
                return verdict
            form = only

    async def send_oneway(self, outgoing: Outgoing, form: Form, timeout: float) -> None:
        """Send without waiting for an answer, in one attempt. An error means that it was not sent."""
        if not self.watched:
            await self._tell(outgoing, form, timeout)
            return
        context = self._context(outgoing, form, oneway=True)
        await self._hooks.check_forbidden(context)
        await self._hooks.before_send(context)
        try:
            await self._tell(outgoing, form, timeout)
        except PyroMQError as exc:
            context.error = exc
            raise
        finally:
            await self._hooks.after_send(context)

    async def _tell(self, outgoing: Outgoing, form: Form, timeout: float) -> None:
        began = _now()
        connection = self.connection(form)
        if connection is not None:
            frame = form.frame(outgoing, next_opaque(), _now_ms(), oneway=True)
            if frame is not None and connection.start(0, outgoing.code, frame, None, timeout):
                return
        address = await self._address(form, timeout)
        command = _command(form, outgoing, oneway=True)
        await self._calls.oneway(address, command, timeout - (_now() - began), vip=self._vip)

    async def writable(self, form: Form, timeout: float) -> None:
        """Wait until the broker of `form` reads, if it is connected; at most `timeout`."""
        connection = self.connection(form)
        if connection is not None:
            await connection.writable(timeout)

    # One attempt

    async def _attempt(self, outgoing: Outgoing, form: Form, limit: float) -> SendResult:
        if self.watched:
            return await self._watched_attempt(outgoing, form, limit)
        return self.result(outgoing, form, await self._ask(outgoing, form, limit))

    async def _watched_attempt(self, outgoing: Outgoing, form: Form, limit: float) -> SendResult:
        context = self._context(outgoing, form)
        await self._hooks.check_forbidden(context)
        await self._hooks.before_send(context)
        began = _now()
        try:
            response = await self._ask(outgoing, form, limit)
            context.trace_on = (response.ext or {}).get(props.TRACE_ON) != "false"
            context.result = self.result(outgoing, form, response)
        except PyroMQError as exc:
            context.error = exc
            raise
        finally:
            context.cost_ms = int(1000 * (_now() - began))
            if context.result is not None or context.error is not None:
                await self._hooks.after_send(context)
        return context.result

    async def _ask(self, outgoing: Outgoing, form: Form, limit: float) -> Command:
        """The broker's answer, whatever it is."""
        began = _now()
        connection = self.connection(form)
        if connection is not None:
            opaque = next_opaque()
            frame = form.frame(outgoing, opaque, _now_ms())
            future: asyncio.Future[Command] = self._loop.create_future()
            received = connection.received
            if frame is not None and connection.start(opaque, outgoing.code, frame, future, limit):
                try:
                    response = await future
                except BaseException as exc:
                    connection.forget(opaque)
                    if isinstance(exc, RequestTimeout):
                        self.remoting.give_up_if_silent(connection, received, limit)
                    raise
                if response.code != ResponseCode.GO_AWAY:
                    return response
                self.left(form, connection)
        address = await self._address(form, limit)
        return await self._calls.ask(address, _command(form, outgoing), limit - (_now() - began), vip=self._vip)

    def result(self, outgoing: Outgoing, form: Form, response: Command) -> SendResult:
        """The result in an answer; raises the error it stands for."""
        status = STATUS_BY_CODE.get(response.code)
        if status is None:
            error = broker_error(response.code, response.remark, form.broker)
            error.topic = form.shown.topic
            error.address = self._routes.master(form.broker) or ""
            raise error
        ext = response.ext or {}
        try:
            queue = form.shown
            if ext["queueId"] != form.queue_text:
                queue = MessageQueue(broker_name=queue.broker_name, queue_id=int(ext["queueId"]), topic=queue.topic)
            return SendResult(
                status,
                outgoing.message_id,
                ext["msgId"],
                queue,
                int(ext["queueOffset"]),
                ext.get("transactionId"),
                ext.get(props.MSG_REGION, DEFAULT_REGION),
                ext.get("recallHandle"),
            )
        except (KeyError, ValueError) as exc:
            raise RemoteProtocolError(f"{form.broker}: stored the message but did not say where: {exc!r}") from None

    def left(self, form: Form, connection: Connection) -> None:
        """The broker asked us to reconnect."""
        address = self._routes.master(form.broker)
        if address is not None:
            self.remoting.leave(self._calls.vip(address) if self._vip else address, connection)

    async def _await_master(self, form: Form, attempts: Attempts) -> None:
        """An attempt at this group failed: see whether it has another master by now, or give it time for that."""
        if not self._routes.may_change_master(form.broker):
            return
        if self._routes.master(form.broker) in (None, attempts.address):
            await self._routes.look_again(form.queue.topic, attempts.left(_now()))
        if self._routes.master(form.broker) in (None, attempts.address):
            await asyncio.sleep(attempts.pause(_now()))

    def failed(
        self, attempts: Attempts, form: Form, error: PyroMQError, *, pipelined: bool = False
    ) -> SendResult | None:
        """What to do after an attempt failed. `pipelined`: more may be on its way to the same queue, in this order."""
        now = _now()
        # A broker without an address was not asked, so it did not fail.
        if self.faults is not None and not attempts.only and not isinstance(error, RouteNotFound):
            self.faults.failed(form.broker, now, refused=isinstance(error, BrokerError))
        may_change = not (pipelined and attempts.only) and self._routes.may_change_master(form.broker)
        return attempts.failed(form.broker, error, now, may_change_master=may_change)

    def connection(self, form: Form) -> Connection | None:
        """An open connection to the broker, if there is one."""
        address = self._routes.master(form.broker)
        if address is None:
            return None
        return self.remoting.open_connection(self._calls.vip(address) if self._vip else address)

    async def _address(self, form: Form, limit: float) -> str:
        address = self._routes.master(form.broker)
        if address is not None:
            return address
        try:
            async with asyncio.timeout(limit):
                return await self._routes.master_or_refresh(form.queue)
        except TimeoutError as exc:
            if isinstance(exc, RequestTimeout):
                raise
            raise RequestTimeout("name server", RequestCode.GET_ROUTEINFO_BY_TOPIC, limit) from None

    def _form(self, queue: MessageQueue) -> Form:
        shown = queue
        topic = self._client.namespace.unwrap(queue.topic)
        if topic != queue.topic:
            shown = MessageQueue(broker_name=queue.broker_name, queue_id=queue.queue_id, topic=topic)
        return Form(self.group, queue, shown, self.settings.default_queues)

    def _context(self, outgoing: Outgoing, form: Form, *, oneway: bool = False) -> SendContext:
        return SendContext(
            group=self._client.namespace.unwrap(self.group),
            client_id=self._client.client_id,
            messages=outgoing.messages,
            message_id=outgoing.message_id,
            queue=form.shown,
            address=self._routes.master(form.broker) or "",
            message_type=outgoing.kind,
            body_length=len(outgoing.body),
            oneway=oneway,
            started_ms=_now_ms(),
        )


class HiddenProducer:
    """Sends the client's own messages: those a consumer gives back, and replies.

    It is not a member of the client; every heartbeat names its group.
    """

    def __init__(self, client: Client, sender: Sender | None = None) -> None:
        self.sender = sender or Sender(client, INNER_PRODUCER_GROUP)

    async def send(
        self,
        topic: str,
        body: bytes,
        flag: int,
        properties: Mapping[str, str],
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        broker: str | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message with exactly these properties, plus an id if there is none.

        With `broker`, prefer a queue of that broker.
        """
        sender = self.sender
        seconds = sender.settings.timeout if timeout is None else timeout
        began = _now()
        target = sender.known_target(topic) or await sender.target(topic, seconds)
        outgoing = with_properties(body, flag, properties)
        outgoing.code = code
        only = None if broker is None else next((form for form in target.forms if form.broker == broker), None)
        return await sender.send(outgoing, target, only, seconds - (_now() - began))


def _command(form: Form, outgoing: Outgoing, *, oneway: bool = False) -> Command:
    return form.command(outgoing, _now_ms(), oneway)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
