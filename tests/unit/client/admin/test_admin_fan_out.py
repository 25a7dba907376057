"""Many servers under one deadline: what some said, and who is missing."""

from __future__ import annotations

import asyncio
import time

import pytest

from pyromq.client.admin.fan_out import fan_out, more_time, within
from pyromq.errors import ConnectFailed, RequestTimeout, ServerError


async def test_all_are_asked_at_once():
    together = asyncio.Barrier(3)

    async def ask(address):
        await together.wait()
        return address.upper()

    answers = await fan_out({"a": "x", "b": "y", "c": "z"}, ask)
    assert answers.results == {"a": "X", "b": "Y", "c": "Z"}
    assert answers.missing == ()


async def test_who_fails_is_missing_and_keeps_nobody_else_from_answering():
    async def ask(address):
        if address == "bad":
            raise ServerError("no", "bad:1")
        return 7

    answers = await fan_out({"a": "good", "broker-b": "bad"}, ask)
    assert answers.some() == {"a": 7}
    [missing] = answers.missing
    assert (missing.server, str(missing)) == ("broker-b", "broker-b: bad:1: no (code 1)")


async def test_who_hangs_is_missing_when_the_time_is_over():
    async def ask(address):
        if address == "hangs":
            await asyncio.Event().wait()
        return 7

    async with within(0.02):
        answers = await fan_out({"a": "answers", "b": "hangs"}, ask)
    assert answers.results == {"a": 7}
    assert str(answers.missing[0]) == "b: no answer within 0.02 s"
    assert isinstance(answers.missing[0].error, RequestTimeout)


async def test_one_deadline_is_for_all_that_is_asked():
    async def ask(address):
        await (asyncio.Event().wait() if address == "hangs" else asyncio.sleep(0.001))

    async with within(0.02):
        await fan_out({"a": "hangs"}, ask)
        # It took all the time there was: those who come next would answer if each had its own.
        later = [await fan_out({"b": "answers"}, ask) for _ in range(5)]
    assert [len(answers.missing) for answers in later] == [1] * 5


async def test_what_is_no_fan_out_ends_a_moment_after_the_deadline(monkeypatch):
    monkeypatch.setattr("pyromq.client.admin.fan_out._GRACE", 0.01)
    with pytest.raises(TimeoutError):
        async with within(0.01):
            await asyncio.Event().wait()


async def test_if_nobody_answers_the_first_failure_is_raised():
    async def ask(address):
        raise ConnectFailed(address, "refused")

    answers = await fan_out({"a": "x:1", "b": "y:1"}, ask)
    with pytest.raises(ConnectFailed, match="x:1"):
        answers.some()
    assert (await fan_out({}, ask)).some() == {}


async def test_cancelling_leaves_no_task_behind():
    started = asyncio.Event()

    async def ask(address):
        started.set()
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    asking = asyncio.create_task(fan_out({"a": 1, "b": 2}, ask))
    await started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert asyncio.all_tasks() == before


async def test_time_that_somebody_thought_is_not_counted(monkeypatch):
    monkeypatch.setattr("pyromq.client.admin.fan_out._GRACE", 0.0)

    async def ask(address):
        await asyncio.sleep(0.001)
        return address

    async with within(0.05):
        began = time.monotonic()
        time.sleep(0.06)  # noqa: ASYNC251 - as a question at a terminal, which nothing goes on beside
        more_time(time.monotonic() - began)
        assert (await fan_out({"a": 1}, ask)).results == {"a": 1}
    more_time(1.0)  # outside it means nothing
