"""What tests of fail-over share."""

from __future__ import annotations

import pytest
from tests.integration.broker.failover.replica_kit import Controllers, Replica


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
