"""An admin client of the cluster, and members of groups for it to look at."""

from __future__ import annotations

import pytest
from tests.integration.client.admin.admin_kit import TOPIC

from pyromq.client.admin import AdminClient


@pytest.fixture
async def admin(cluster):
    async with AdminClient(cluster.namesrv) as admin:
        yield admin


@pytest.fixture
async def topic(cluster):
    """The topic `orders` with four queues."""
    await cluster.create_topic(TOPIC)
    return TOPIC


@pytest.fixture
async def joined(cluster, client_of):
    """Have a member join from a client of its own, and known to the broker; gives the client's id."""

    async def join(member):
        client = await client_of(cluster)
        for topic in member.topics():
            await client.routes.refresh(topic)
        await client.join(member)
        return client.client_id

    return join
