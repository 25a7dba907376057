"""`/api/v1`: what pages show and do, as JSON. Each operation is declared once; openapi.json is made from that.

An answer with several rows is `{"rows": […], "missing": [{"server", "error"}], "summary"}`: rows are only complete if
nobody is missing. A failure is `{"error"}` with a fitting status.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pyromq.admin.cluster.doctor import examine
from pyromq.admin.cluster.doctor_rules import Finding
from pyromq.admin.cluster.replication import ReplicaRow, replication_table
from pyromq.admin.groups.lag import QueueLag, group_lag
from pyromq.admin.groups.members import InspectedClient, ProducerRow, group_inspect, producer_list
from pyromq.admin.groups.reset import QueueMove, apply_plan, reset_plan
from pyromq.admin.lookout import BrokerSeen, GroupSeen, TopicSeen
from pyromq.admin.messages.bodies import encoded
from pyromq.admin.messages.query import parse_query
from pyromq.admin.messages.search import MessageSummary, message_at, search
from pyromq.admin.messages.traces import TraceEvent
from pyromq.admin.messages.viewing import Delivery, Draft, Sent, deliveries, publish, traced, view_of
from pyromq.admin.topics import QueueStats, TopicSettings, topic_settings, topic_stats
from pyromq.errors import ConfigError, NoMessage, PyroMQError

from .. import __version__
from ..access.roles import Role
from ..kept.history import Chart
from ..kept.jobs import Job, RowResult
from ..pages.groups import goal_of
from ..pages.overview import SPANS
from ..pages.publishing import GROUP
from .asked import Asked
from .routing import status_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.requests import Request

    from pyromq.admin.asking import Missing
    from pyromq.admin.listing import Listing

    Handler = Callable[[Asked], Awaitable[Any]]
    Declare = Callable[[Handler], Handler]


@dataclass(frozen=True, slots=True)
class Operation:
    """One path and method. `rows` is the type of the answer's rows, `returns` that of an answer without rows."""

    method: str
    path: str
    summary: str
    handler: Handler
    query: dict[str, str]
    body: type | None = None
    rows: type | None = None
    returns: type | None = None
    role: Role = Role.VIEWER

    @property
    def name(self) -> str:
        return self.handler.__name__.strip("_")


OPERATIONS: list[Operation] = []


def _get(path: str, summary: str, *, rows: type | None = None, returns: type | None = None, **query: str) -> Declare:
    def declare(handler: Handler) -> Handler:
        OPERATIONS.append(Operation("GET", path, summary, handler, query, rows=rows, returns=returns))
        return handler

    return declare


def _post(path: str, summary: str, body: type, *, rows: type | None = None, role: Role = Role.OPERATOR) -> Declare:
    def declare(handler: Handler) -> Handler:
        OPERATIONS.append(Operation("POST", path, summary, handler, {}, body=body, rows=rows, role=role))
        return handler

    return declare


# What the answers are made of


@dataclass(frozen=True, slots=True)
class Overview:
    """A cluster at a glance. Times are seconds since 1970."""

    at: float
    clusters: tuple[str, ...]
    brokers: int
    silent: tuple[str, ...]
    name_server_silent_since: float | None
    topics: int
    groups: int
    in_tps: float | None
    out_tps: float | None
    lag: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class FullMessage:
    """A message with its body; `encoding` is utf-8 or base64."""

    id: str
    topic: str
    broker: str
    queue: int
    offset: int
    stored: float | None
    born: float | None
    tags: str | None
    keys: tuple[str, ...]
    retries: int
    size: int
    properties: dict[str, str]
    body: str
    encoding: str
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True, slots=True)
class NewTopic:
    topic: str
    queues: int = 8
    cluster: str | None = None
    perm: int = 6
    attributes: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class NewMessage:
    """`queue` is `broker:number` for one certain queue; a body in base64 says so in `encoding`."""

    body: str
    encoding: str = "utf-8"
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] | None = None
    delay_level: int = 0
    queue: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class NewOffsets:
    """`move` is time, earliest, latest, offset or shift; `value` a time or a number. Without `apply` only the plan."""

    topic: str
    move: str = "time"
    value: str = "now"
    apply: bool = False


def _listed(rows: Iterable[object], missing: Iterable[Missing] = (), summary: str = "", **more: Any) -> dict[str, Any]:
    silent = [{"server": each.server, "error": str(each.error)} for each in missing]
    return {"rows": list(rows), "missing": silent, "summary": summary} | more


def _of(listing: Listing[Any]) -> dict[str, Any]:
    return _listed(listing.rows, listing.missing, listing.summary)


# Reading


@_get("/overview", "The cluster at a glance, as of the last look.", returns=Overview)
async def _overview(ask: Asked) -> Overview:
    seen = ask.seen
    return Overview(
        seen.at,
        seen.clusters,
        len(seen.brokers),
        tuple(each.row.address for each in seen.silent),
        seen.name_server_silent_since,
        len(seen.topics),
        len(seen.groups),
        seen.in_tps,
        seen.out_tps,
        seen.lag,
        seen.dead,
    )


@_get("/brokers", "All brokers with their figures, silent ones included.", rows=BrokerSeen)
async def _brokers(ask: Asked) -> Any:
    return _listed(ask.seen.brokers, ask.seen.missing)


@_get("/replication", "Who follows whom, and how far behind.", rows=ReplicaRow)
async def _replication(ask: Asked) -> Any:
    table: Listing[Any] = await replication_table(ask.admin)
    return _of(table)


@_get("/topics", "All topics.", rows=TopicSeen, q="a part of the name")
async def _topics(ask: Asked) -> Any:
    word = ask.text("q").lower()
    return _listed((topic for topic in ask.seen.topics.values() if word in topic.topic.lower()), ask.seen.missing)


@_get("/topics/{topic}/queues", "Where the queues of a topic begin and end.", rows=QueueStats)
async def _queues(ask: Asked) -> Any:
    return _of(await topic_stats(ask.admin, ask.part("topic")))


@_get("/topics/{topic}/config", "The settings of a topic on each broker.", rows=TopicSettings)
async def _topic_config(ask: Asked) -> Any:
    return _of(await topic_settings(ask.admin, ask.part("topic")))


@_get("/groups", "All groups with their lag in messages and seconds.", rows=GroupSeen, q="a part of the name")
async def _groups(ask: Asked) -> Any:
    word = ask.text("q").lower()
    return _listed((group for group in ask.seen.groups.values() if word in group.group.lower()), ask.seen.missing)


@_get("/groups/{group}/lag", "The lag of a group, queue by queue.", rows=QueueLag)
async def _lag(ask: Asked) -> Any:
    found = await group_lag(ask.admin, ask.part("group"))
    return _listed(found.rows, found.missing, found.summary, lag=found.lag, tps=found.tps)


@_get("/groups/{group}/clients", "What the members of a group say about themselves.", rows=InspectedClient)
async def _clients(ask: Asked) -> Any:
    return _of(await group_inspect(ask.admin, ask.part("group")))


@_get("/producers", "All producers that are connected.", rows=ProducerRow)
async def _producers(ask: Asked) -> Any:
    return _of(await producer_list(ask.admin))


@_get(
    "/messages",
    "Find messages, newest first.",
    rows=MessageSummary,
    q="topic:orders tag:paid prop.k=v body~text after:-1h, or an id or key",
    limit="at most 500",
    older="the field `older` of the answer before",
)
async def _messages(ask: Asked) -> Any:
    limit = min(max(ask.number("limit", 50), 1), 500)
    found = await search(ask.admin, parse_query(ask.text("q")), limit=limit, older=ask.text("older") or None)
    more: dict[str, Any] = {
        "scanned": found.scanned,
        "total": found.total,
        "truncated": found.truncated,
        "older": found.older,
    }
    return _listed(found.rows, found.missing, **more)


@_get(
    "/messages/{topic}/{broker}/{queue}/{offset}",
    "One message, with its body and what groups did with it.",
    returns=FullMessage,
)
async def _message(ask: Asked) -> FullMessage:
    queue, offset = ask.part("queue"), ask.part("offset")
    if not (queue.isdigit() and offset.isdigit() and len(offset) < 19):
        raise ConfigError("queue and offset are numbers")
    message = await message_at(ask.admin, ask.part("topic"), ask.part("broker"), int(queue), int(offset))
    view = view_of(message)
    body, encoding = encoded(view.body)
    return FullMessage(
        view.id,
        view.topic,
        view.broker,
        view.queue,
        view.offset,
        view.stored.timestamp() if view.stored else None,
        view.born.timestamp() if view.born else None,
        view.tags,
        view.keys,
        view.retries,
        view.size,
        view.own | view.system,
        body,
        encoding,
        tuple(await deliveries(ask.admin, message)),
    )


@_get("/traces/{id}", "What clients report about a message.", rows=TraceEvent)
async def _traces(ask: Asked) -> Any:
    found = await traced(ask.admin, ask.part("id"))
    return _of(found.events) if found.events else _listed((), summary=found.reason)


@_get("/findings", "What `pyromq doctor` finds.", rows=Finding)
async def _findings(ask: Asked) -> Any:
    return _of(await examine(list(ask.cluster.source.namesrv), ask.cluster.source.client))


@_get("/jobs", "Jobs, newest first.", rows=Job)
async def _jobs(ask: Asked) -> Any:
    return _listed(await ask.site.jobs.all())


@_get("/jobs/{id}/rows", "The results of a job.", rows=RowResult, failed="1 for failed ones only")
async def _job_rows(ask: Asked) -> Any:
    number = ask.part("id")
    job = await ask.site.jobs.get(int(number)) if number.isdigit() and len(number) < 16 else None
    if job is None:
        raise NoMessage(f"there is no job {number}")
    rows = await ask.site.jobs.rows(job.id, failed_only=bool(ask.text("failed")), limit=100_000)
    return _listed(rows, job=job)


@_get(
    "/history",
    "Numbers over time.",
    returns=Chart,
    series="names, separated by commas: in,out,lag",
    span="15m, 1h, 2h, 1d or 7d",
)
async def _history(ask: Asked) -> Chart:
    names = [name for name in ask.text("series").split(",") if name][:8]
    span = SPANS.get(ask.text("span", "1h"))
    if not names or span is None:
        raise ConfigError("series and span are needed: series=in,out&span=1h")
    now = time.time()
    return await ask.site.history.chart(ask.cluster.name, names, now - span, now)


# Changing


@_post("/topics", "Create a topic.", NewTopic)
async def _create_topic(ask: Asked) -> Any:
    new = await _body(ask, NewTopic)
    async with ask.changing("create topic", new.topic):
        where = await ask.admin.topics.create(
            new.topic,
            cluster=new.cluster,
            read_queues=new.queues,
            write_queues=new.queues,
            perm=new.perm,
            attributes=new.attributes,
        )
    return _listed(where)


@_post("/topics/{topic}/messages", "Send a message.", NewMessage, rows=Sent)
async def _send(ask: Asked) -> Any:
    new = await _body(ask, NewMessage)
    try:
        body = base64.b64decode(new.body, validate=True) if new.encoding == "base64" else new.body.encode()
    except binascii.Error:
        raise ConfigError("the body is not base64") from None
    if not 1 <= new.count <= 1000:
        raise ConfigError("count is a number from 1 to 1000")
    draft = Draft(
        ask.part("topic"), body, new.tags, new.keys, new.properties, delay_level=new.delay_level, at=new.queue
    )
    async with ask.cluster.publishing, ask.changing("send message", draft.topic):
        return _listed(await publish(ask.admin, draft, count=new.count, group=GROUP))


@_post("/groups/{group}/offsets", "Plan where a group goes on; with `apply`, move it.", NewOffsets, rows=QueueMove)
async def _offsets(ask: Asked) -> Any:
    new, name = await _body(ask, NewOffsets), ask.part("group")
    plan = await reset_plan(ask.admin, name, new.topic, goal_of(new.move, new.value))
    if new.apply:
        async with ask.changing("move group", f"{name} in {new.topic}", plan.summary):
            await apply_plan(ask.admin, plan)
    return _listed(plan.rows, plan.missing, plan.summary, online=plan.online, applied=new.apply)


async def _body(ask: Asked, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(await ask.request.body(), type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as exc:
        raise ConfigError(str(exc)) from None


# Serving


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def _route(operation: Operation) -> Route:
    async def answer(request: Request) -> Response:
        ask = Asked(request)
        if not ask.visitor.may(operation.role):
            path = f"{request.method} {request.url.path}"
            await ask.audit("request", path, "refused", f"needs {operation.role.word}")
            return JSONResponse({"error": f"this needs the role {operation.role.word}"}, 403)
        try:
            async with ask.deadline(5):
                return Response(_encoded(await operation.handler(ask)), media_type="application/json")
        except (PyroMQError, TimeoutError) as exc:
            return JSONResponse({"error": str(exc) or "no answer in time"}, status_of(exc))

    return Route(f"/api/v1{operation.path}", answer, methods=[operation.method])


async def _index(request: Request) -> Response:
    root = Asked(request).root
    paths = sorted({f"{root}/api/v1{operation.path}" for operation in OPERATIONS})
    return JSONResponse({"version": __version__, "openapi": f"{root}/api/v1/openapi.json", "paths": paths})


async def _openapi(request: Request) -> Response:
    return Response(_encoded(openapi(Asked(request).root)), media_type="application/json")


def api_routes() -> list[Route]:
    return [
        Route("/api/v1", _index),
        Route("/api/v1/openapi.json", _openapi),
        *(_route(operation) for operation in OPERATIONS),
    ]


def openapi(root: str = "") -> dict[str, Any]:
    """The description of all operations, in OpenAPI 3.1."""
    types = {kind for each in OPERATIONS for kind in (each.body, each.rows, each.returns) if kind is not None}
    ordered = sorted(types, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(ordered, schemas, strict=True))
    missing = {
        "type": "array",
        "items": {"type": "object", "properties": {"server": {"type": "string"}, "error": {"type": "string"}}},
    }
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        if each.returns is not None:
            content: dict[str, Any] = schema_of[each.returns]
        else:
            rows = {"type": "array", "items": schema_of[each.rows] if each.rows else {}}
            content = {
                "type": "object",
                "properties": {"rows": rows, "missing": missing, "summary": {"type": "string"}},
            }
        in_path = [part[1:-1] for part in each.path.split("/") if part.startswith("{")]
        parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in in_path]
        parameters += [
            {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
            for name, text in each.query.items()
        ]
        described: dict[str, Any] = {
            "operationId": each.name,
            "summary": each.summary,
            "parameters": parameters,
            "responses": {
                "200": {"description": "The answer.", "content": {"application/json": {"schema": content}}},
                "default": {
                    "description": "It failed.",
                    "content": {
                        "application/json": {"schema": {"type": "object", "properties": {"error": {"type": "string"}}}}
                    },
                },
            },
            "x-role": each.role.word,
        }
        if each.body is not None:
            described["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": schema_of[each.body]}},
            }
        paths.setdefault(each.path, {})[each.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "PyroMQ dashboard", "version": __version__, "description": inspect.cleandoc(__doc__ or "")},
        "servers": [{"url": f"{root}/api/v1"}],
        "security": [{"basic": []}, {}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
    }
