"""The table of the blocking classes says of every public name of the async ones what it becomes, and says it right."""

from __future__ import annotations

import inspect

import pytest

from pyromq import client, sync
from pyromq.sync.facade import FACADES
from pyromq.sync.table import TABLE, Kind

COROUTINES = {Kind.AWAITS, Kind.STARTS, Kind.CLOSES, Kind.SUBMITS, Kind.ENTERS}
PLAIN = {Kind.CALLS, Kind.LISTENS, Kind.DECORATES}
ENTRIES = [(cls, name, kind) for cls, row in TABLE.items() for name, kind in row.names.items()]


def public_names(cls):
    names = {name for name in dir(cls) if not name.startswith("_")}
    return names | {name for name in ("__aiter__", "__aenter__") if hasattr(cls, name)}


@pytest.mark.parametrize("cls", TABLE, ids=lambda cls: cls.__name__)
def test_every_public_name_of_an_async_class_is_in_the_table(cls):
    row = TABLE[cls]
    assert public_names(cls) - row.names.keys() - row.left_out == set()
    assert row.left_out <= public_names(cls)
    assert not row.left_out & row.names.keys()


@pytest.mark.parametrize(("cls", "name", "kind"), ENTRIES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_name_is_what_the_table_says(cls, name, kind):
    attribute = getattr(cls, name, None)
    assert inspect.iscoroutinefunction(attribute) is (kind in COROUTINES)
    if kind in PLAIN or kind is Kind.ITERATES:
        assert inspect.isfunction(attribute)
    elif kind in (Kind.LOOKS, Kind.IS):
        assert attribute is None or isinstance(attribute, property)


def test_a_method_submits_if_and_only_if_it_gives_a_future():
    futures = {(cls, name) for cls, name, _ in ENTRIES if "Future" in inspect_return(cls, name)}
    assert futures == {(cls, name) for cls, name, kind in ENTRIES if kind is Kind.SUBMITS}


def inspect_return(cls, name):
    return str(getattr(getattr(cls, name, None), "__annotations__", {}).get("return", ""))


def test_every_class_of_the_table_is_exported_and_so_is_the_message():
    assert {cls.__name__ for cls in TABLE} | {"ReceivedMessage"} == set(sync.__all__)
    for cls, facade in FACADES.items():
        assert getattr(sync, cls.__name__) is facade
        assert facade.__module__ == "pyromq.sync"


def test_every_client_that_is_exported_has_a_blocking_twin():
    lively = {name for name in client.__all__ if hasattr(getattr(client, name), "__aenter__")}
    assert lively <= set(sync.__all__)


def test_a_blocking_method_keeps_signature_and_documentation():
    blocking, waiting = sync.Producer.send, client.Producer.send
    assert inspect.signature(blocking) == inspect.signature(waiting)
    assert blocking.__doc__ == waiting.__doc__
    assert blocking.__qualname__ == "Producer.send"
    assert not inspect.iscoroutinefunction(blocking)
    assert "async" not in str(sync.TransactionProducer.transaction.__doc__)
    assert "threads" in str(sync.Producer.__doc__)
