"""The blocking classes, generated from the table. All logic stays in the async ones."""

from __future__ import annotations

import functools
import inspect
import logging
from typing import TYPE_CHECKING, Any

from pyromq import client
from pyromq.client import admin

from .portal import handed_over, portal
from .received import blocking, handled, listener
from .table import TABLE, Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from concurrent.futures import Future

    from .portal import Portal

logger = logging.getLogger(__name__)


class Facade:
    """The base of all blocking classes: one async object, and the loop that its calls go to."""

    def __init__(self, subject: object, *, began: bool = True) -> None:
        self._subject: Any = subject
        # Before its first waiting call nothing of it is on the loop: it can be set up anywhere, even where an
        # event loop runs and while modules are imported.
        self._began = began

    def __repr__(self) -> str:
        return f"<pyromq.sync {repr(self._subject)[1:-1]}>"

    def _portal(self, name: str) -> Portal:
        kind = type(self).__name__
        instead = kind if kind in client.__all__ else "AdminClient"
        through = portal(f"pyromq.sync.{kind}.{name}", f"pyromq.{instead}")
        self._began = True
        return through

    def _call(self, name: str, function: Callable[[], Any]) -> Any:
        """Call a plain function where it is allowed: on the loop, or here before there is one."""
        return self._portal(name).wait(_coroutine(function)) if self._began else function()


async def _coroutine(function: Callable[[], Any]) -> Any:
    return function()


def _inside(value: Any) -> Any:
    """An argument as the async classes expect it."""
    return value._subject if isinstance(value, Facade) else value


def _bound(method: Callable[..., Any], facade: Facade, args: Any, kwargs: Any) -> Any:
    return method(facade._subject, *map(_inside, args), **{name: _inside(value) for name, value in kwargs.items()})


def _outside(facade: Facade, value: Any) -> Any:
    """A result as the user sees it."""
    if value is facade._subject:
        return facade
    made = FACADES.get(type(value))
    if made is None:
        return blocking(value)
    other: Facade = object.__new__(made)
    Facade.__init__(other, value, began=facade._began)
    return other


# One function per kind: it turns a member of the async class into one of the blocking class.


def _awaits(name: str, method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    def wait(self: Facade, /, *args: Any, **kwargs: Any) -> Any:
        return _outside(self, self._portal(name).wait(_bound(method, self, args, kwargs)))

    return wait


def _starts(name: str, method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    def start(self: Facade, /) -> Any:
        through = self._portal(name)
        started = through.wait(method(self._subject))
        through.remember(self._subject)
        return _outside(self, started)

    return start


def _closes(name: str, method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    def close(self: Facade, /) -> None:
        through = self._portal(name)
        if handled.get() is self._subject:
            closing = through.start(method(self._subject))
            closing.add_done_callback(_logged)
            closing.add_done_callback(lambda _: through.forget(self._subject))
        else:
            through.wait(method(self._subject))
            through.forget(self._subject)

    return close


def _submits(name: str, method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    def submit(self: Facade, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._portal(name).wait(handed_over(_bound(method, self, args, kwargs)))

    return submit


def _calls(name: str, method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    def call(self: Facade, /, *args: Any, **kwargs: Any) -> Any:
        return _outside(self, self._call(name, lambda: _bound(method, self, args, kwargs)))

    return call


def _listens(name: str, method: Callable[..., Any]) -> Any:
    call = _calls(name, method)

    @functools.wraps(method)
    def listen(self: Facade, /, *args: Any, **kwargs: Any) -> Any:
        consumer = self._subject
        given = {key: listener(value, consumer) for key, value in kwargs.items()}
        return call(self, *(listener(value, consumer) for value in args), **given)

    return listen


def _decorates(name: str, method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    def decorate(self: Facade, /, *args: Any, **kwargs: Any) -> Any:
        decorator = _bound(method, self, args, kwargs)

        def decorated(function: Any) -> Any:
            self._call(name, lambda: decorator(listener(function, self._subject)))
            return function

        return decorated

    return decorate


def _looks(name: str, attribute: Any) -> Any:
    def look(self: Facade) -> Any:
        return _outside(self, self._call(name, lambda: getattr(self._subject, name)))

    return property(look, doc=inspect.getdoc(attribute))


def _is(name: str, attribute: Any) -> Any:
    return property(lambda self: _outside(self, getattr(self._subject, name)), doc=inspect.getdoc(attribute))


class Iteration:
    """One `for` loop over an async iterator. Leaving the loop also leaves the iterator."""

    __slots__ = ("_facade", "_portal", "_source")

    def __init__(self, facade: Facade, through: Portal, source: AsyncIterator[Any]) -> None:
        self._facade = facade
        self._portal = through
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._facade._portal("__next__")  # not in an event loop, please
        # Not the process's portal: an iterator inherited by a child would wait there for its parent's messages.
        coming: Any = self._source.__anext__()
        try:
            return blocking(self._portal.wait(coming))
        except StopAsyncIteration:
            raise StopIteration from None


def _iterates(name: str, method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    def iterate(self: Facade) -> Iterator[Any]:
        through = self._portal("__iter__")
        return Iteration(self, through, through.wait(_coroutine(lambda: method(self._subject))))

    return iterate


def _enters(name: str, method: Callable[..., Any]) -> Any:
    def enter(self: Facade) -> Any:
        through = self._portal("__enter__")
        entered = through.wait(method(self._subject))
        if hasattr(self._subject, "close"):
            through.remember(self._subject)
        return _outside(self, entered)

    return enter


def _exit(self: Facade, *exc_info: object) -> None:
    through = self._portal("__exit__")
    through.wait(self._subject.__aexit__(*exc_info))
    through.forget(self._subject)


_MAKERS: dict[Kind, Callable[[str, Any], Any]] = {
    Kind.AWAITS: _awaits,
    Kind.STARTS: _starts,
    Kind.CLOSES: _closes,
    Kind.SUBMITS: _submits,
    Kind.CALLS: _calls,
    Kind.LISTENS: _listens,
    Kind.DECORATES: _decorates,
    Kind.LOOKS: _looks,
    Kind.IS: _is,
    Kind.ITERATES: _iterates,
    Kind.ENTERS: _enters,
}
_BLOCKING_NAMES = {"__aiter__": "__iter__", "__aenter__": "__enter__"}


_SAID = {
    "async with": "with",
    "async for": "for",
    "tasks of one event loop": "threads",
    "one task at a time": "one thread at a time",
}


def blocking_doc(doc: str | None) -> str | None:
    """A docstring of an async class, reworded for its blocking twin."""
    if doc is None:
        return None
    for said, says in _SAID.items():
        doc = doc.replace(said, says)
    return doc


def _make(cls: type, base: type[Facade] = Facade) -> type[Any]:
    """The blocking twin of an async class."""

    @functools.wraps(cls.__init__)  # type: ignore[misc]  # that of the class, not of an instance
    def init(self: Facade, /, *args: Any, **kwargs: Any) -> None:
        given = {name: _inside(value) for name, value in kwargs.items()}
        Facade.__init__(self, cls(*map(_inside, args), **given), began=False)

    members: dict[str, Any] = {
        "__init__": init,
        "__doc__": blocking_doc(cls.__doc__),
        "__module__": __package__,
    }
    for name, kind in TABLE[cls].names.items():
        made = _MAKERS[kind](name, getattr(cls, name, None))
        blocking_name = _BLOCKING_NAMES.get(name, name)
        if inspect.isfunction(made):
            made.__name__ = blocking_name
            made.__qualname__ = f"{cls.__name__}.{blocking_name}"
            made.__module__ = members["__module__"]
            made.__doc__ = blocking_doc(made.__doc__)
        members[blocking_name] = made
        if kind is Kind.ENTERS:
            members["__exit__"] = _exit
    return type(cls.__name__, (base,), members)


def _logged(closed: Future[None]) -> None:
    if (error := closed.exception()) is not None:
        logger.error("closing a consumer from its handler failed", exc_info=error)


Client = _make(client.Client)
Producer = _make(client.Producer)
TransactionProducer = _make(client.TransactionProducer, Producer)
Transaction = _make(client.Transaction)
Consumer = _make(client.Consumer)
PullConsumer = _make(client.PullConsumer)
AdminClient = _make(client.AdminClient)
TopicAdmin = _make(admin.TopicAdmin)
GroupAdmin = _make(admin.GroupAdmin)
OffsetAdmin = _make(admin.OffsetAdmin)
MessageAdmin = _make(admin.MessageAdmin)
BrokerAdmin = _make(admin.BrokerAdmin)
NameServerAdmin = _make(admin.NameServerAdmin)
AclAdmin = _make(admin.AclAdmin)
ClientAdmin = _make(admin.ClientAdmin)
ControllerAdmin = _make(admin.ControllerAdmin)

FACADES: dict[type, type[Any]] = {
    cls: facade
    for cls in TABLE
    for facade in (globals()[cls.__name__],)  # every class in the table has its line above
}
