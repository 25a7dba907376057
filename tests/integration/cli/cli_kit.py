"""Commands run inside this process against a cluster in a thread of its own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import pytest

from pyromq import Producer
from pyromq.cli.main import main


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self):
        return self.out.splitlines()


class Commands:
    """Runs `pyromq …` for one name server."""

    def __init__(self, capsys, namesrv):
        self._capsys = capsys
        self.namesrv = namesrv

    def __call__(self, *arguments):
        with pytest.raises(SystemExit) as done:
            main([*arguments, "-n", self.namesrv])
        out, err = self._capsys.readouterr()
        return Ended(int(done.value.code or 0), out, err)

    def rows(self, *arguments):
        """The rows of a command that ends well."""
        return self(*arguments, "-o", "json").json


def send(namesrv, topic, count):
    """Send so many messages, to all queues in turn."""

    async def work():
        async with Producer("makers", namesrv=namesrv) as producer:
            for number in range(count):
                await producer.send(topic, b"%d" % number)

    asyncio.run(work())
