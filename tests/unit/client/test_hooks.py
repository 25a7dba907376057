"""Hooks: plain and async, and what their errors do."""

from __future__ import annotations

from typing import Any

import pytest

from pyromq.client.hooks import Hook, HookList
from pyromq.protocol.command import Command

CONTEXT: Any = object()


class Noting(Hook):
    def __init__(self):
        self.seen = []

    def before_send(self, context):
        self.seen.append(("before", context))

    async def after_send(self, context):
        self.seen.append(("after", context))


class Failing(Hook):
    def before_send(self, context):
        raise ValueError("mine")

    async def after_send(self, context):
        raise ValueError("mine too")

    def before_rpc(self, address, request):
        raise ValueError("and mine")


class Forbidding(Hook):
    async def check_forbidden(self, context):
        raise PermissionError("not now")


async def test_plain_and_async_methods_are_called():
    hook = Noting()
    hooks = HookList([hook])
    await hooks.before_send(CONTEXT)
    await hooks.after_send(CONTEXT)
    assert hook.seen == [("before", CONTEXT), ("after", CONTEXT)]


async def test_an_error_of_a_hook_is_logged_and_the_next_hook_is_called(caplog):
    hook = Noting()
    hooks = HookList([Failing(), hook])
    await hooks.before_send(CONTEXT)
    await hooks.after_send(CONTEXT)
    assert len(hook.seen) == 2
    assert len(caplog.records) == 2


async def test_only_check_forbidden_may_forbid():
    with pytest.raises(PermissionError):
        await HookList([Forbidding()]).check_forbidden(CONTEXT)


def test_a_list_knows_what_its_hooks_watch():
    assert not HookList()
    assert HookList([Noting()]).watch_sends
    assert HookList([Forbidding()]).watch_sends
    assert not HookList([Noting()]).watch_consumes
    assert not HookList([Hook()]).watch_sends
    assert HookList([Hook()]).with_more([Noting()]).watch_sends


def test_only_hooks_that_watch_requests_are_given_to_connections(caplog):
    assert HookList([Noting()]).rpc_hooks() == []
    (hook,) = HookList([Failing()]).rpc_hooks()
    hook.before_request("a:1", Command.request(310))
    assert "and mine" in caplog.text
