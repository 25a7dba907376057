"""What tests of fail-over share."""

from __future__ import annotations

import contextlib

import pytest
from tests.integration.broker.failover.group_kit import FailoverGroup, new_controller
from tests.integration.broker.failover.replica_kit import Controllers, Replica
from tests.integration.broker.life_kit import new_name_server


@pytest.fixture
async def group(tmp_path):
    async with (
        new_name_server(tmp_path) as name_server,
        new_controller(tmp_path) as controller,
        contextlib.AsyncExitStack() as life,
    ):
        yield FailoverGroup(tmp_path, name_server, controller, life)


@pytest.fixture
async def replica(tmp_path):
    """Makes the brokers of one group."""
    made = []
    controllers = Controllers()

    def make(broker_id, **config):
        replica = Replica(tmp_path, broker_id, controllers, **config)
        made.append(replica)
        return replica

    yield make
    for each in made:
        await each.close()
