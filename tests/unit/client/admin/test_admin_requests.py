"""Asking many at once: bounded, complete, and honest about who failed."""

from __future__ import annotations

import asyncio

import pytest

from pyromq.client.admin.fan_out import AT_ONCE, fan_out
from pyromq.errors import NoPermission, PartialFailure, SystemBusy


async def test_all_are_asked_but_never_more_than_some_at_once():
    under_way = most = 0

    async def ask(number):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return number * 2

    answers = await fan_out(range(100), ask, "double")
    assert most == AT_ONCE
    assert answers.check() == {str(number): number * 2 for number in range(100)}


async def test_who_fails_does_not_keep_the_others_from_being_asked():
    async def ask(name):
        if name != "b":
            raise NoPermission("no", name)
        return "yes"

    answers = await fan_out("abc", ask, "change it")
    with pytest.raises(PartialFailure) as caught:
        answers.check(["what b said"])
    failure = caught.value
    assert failure.done == ("b",)
    assert [name for name, _ in failure.failures] == ["a", "c"]
    assert failure.partial == ["what b said"]
    assert failure.code == NoPermission.code
    assert str(failure) == "change it: failed on 2 of 3: a: a: no (code 16); c: c: no (code 16)"


async def test_the_failure_of_the_only_one_is_raised_as_it_is():
    async def ask(name):
        raise SystemBusy("later", name)

    answers = await fan_out(["a"], ask, "change it")
    with pytest.raises(SystemBusy, match="a: later"):
        answers.check()


async def test_if_all_fail_the_error_says_so_of_each():
    async def ask(name):
        raise SystemBusy("later", name)

    answers = await fan_out("ab", ask, "change it")
    with pytest.raises(PartialFailure) as caught:
        answers.check()
    assert caught.value.done == ()


async def test_nobody_is_asked_twice():
    asked = []

    async def ask(name):
        asked.append(name)

    await fan_out(["a", "b", "a"], ask, "ask")
    assert sorted(asked) == ["a", "b"]


async def test_giving_up_takes_all_requests_along():
    begun = asyncio.Event()
    ended = []

    async def ask(name):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    asking = asyncio.create_task(fan_out("ab", ask, "wait"))
    async with asyncio.timeout(5):
        await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert sorted(ended) == ["a", "b"]
