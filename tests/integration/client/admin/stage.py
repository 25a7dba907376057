"""A name server that a test writes itself: one broker, which has every topic."""

from __future__ import annotations

from pyromq.protocol.bodies import BrokerData, ClusterInfo, TopicRouteData
from pyromq.protocol.codes import RequestCode


def name_server_for(broker):
    """The processors of a name server that knows `broker` under the name broker-a."""
    data = BrokerData(broker_name="broker-a", cluster="c", broker_addrs={0: broker.address})
    info = ClusterInfo(broker_addr_table={"broker-a": data}, cluster_addr_table={"c": ["broker-a"]})
    route = TopicRouteData(broker_datas=[data])
    return {
        RequestCode.GET_BROKER_CLUSTER_INFO: lambda _, request: request.reply(body=info.encode()),
        RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _, request: request.reply(body=route.encode()),
    }
