"""Settings of both ends of a connection, under the names that RocketMQ's network layer gives them."""

from __future__ import annotations

from dataclasses import dataclass

from pyromq.settings import KiB, MiB, option


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How a server listens and how much it lets a peer ask for."""

    bind_address: str = option(
        "bindAddress", "0.0.0.0", "Address to listen on. 127.0.0.1 keeps the server to this machine."
    )
    listen_port: int = option("listenPort", 9876, "Port to listen on; 0 takes any free one.", min=0, max=65535)
    backlog: int = option("serverSocketBacklog", 1024, "Connections the system holds until they are accepted.", min=1)
    send_buffer: int = option(
        "serverSocketSndBufSize", 0, "Bytes of the socket's send buffer; 0 leaves it to the system.", min=0
    )
    receive_buffer: int = option(
        "serverSocketRcvBufSize", 0, "Bytes of the socket's receive buffer; 0 leaves it to the system.", min=0
    )
    max_idle_seconds: int = option(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "A connection that neither reads nor writes for so long is closed.",
        min=1,
    )
    async_permits: int = option(
        "serverAsyncSemaphoreValue", 64, "Requests of the server to its clients that may be under way at once.", min=1
    )
    oneway_permits: int = option(
        "serverOnewaySemaphoreValue", 256, "One-way requests of the server that may wait to be written.", min=1
    )
    high_water: int = option(
        "writeBufferHighWaterMark",
        0,
        "Bytes waiting to be written to a connection before its requests are left unread; 0 means 1 MiB.",
        min=0,
        size=True,
    )
    low_water: int = option(
        "writeBufferLowWaterMark",
        0,
        "Bytes waiting to be written below which reading goes on; 0 means a quarter of the high mark.",
        min=0,
        size=True,
    )
    max_unsent: int = option(
        "maxUnsentBytes",
        64 * MiB,
        "A connection for which so many bytes wait is closed: its peer has stopped reading.",
        min=16 * MiB,
        size=True,
    )
    max_frame: int = option(
        "com.rocketmq.remoting.frameMaxLength",
        16 * MiB,
        "Largest frame to take or send. Java peers refuse more than 16 MiB, so raise it only for your own.",
        min=1024,
        max=2**31 - 1,
        size=True,
    )
    max_connections: int = option(
        "maxConnections", 65535, "Connections to hold; one more is closed as soon as it is accepted.", min=1
    )
    max_running_requests: int = option(
        "maxRunningRequests",
        10000,
        "Requests that may wait for something, over all connections, before the next gets code 2, system busy.",
        min=1,
    )
    max_request_body: int = option(
        "maxRequestBodySize",
        1 * MiB,
        "Largest body of a heartbeat, of a list of queues to lock and the like. Raise it for clients with thousands of "
        "subscriptions; messages have maxMessageSize.",
        min=64 * KiB,
        size=True,
    )
    max_unfinished: int = option(
        "maxUnfinishedBytes",
        256 * MiB,
        "Bytes of requests that have begun and not ended, over all connections. With more, the largest silent one is "
        "closed. Raise it for hundreds of clients that send large messages over slow lines.",
        min=16 * MiB,
        size=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client connects and how much it asks for at once."""

    connect_timeout: float = option(
        "com.rocketmq.remoting.client.connect.timeout.seconds", 3.0, "Seconds to wait for a connection.", min=0.01
    )
    max_idle_seconds: int = option(
        "com.rocketmq.remoting.client.idle.timeout.seconds",
        120,
        "A connection that neither reads nor writes for so long is closed.",
        min=1,
    )
    async_permits: int = option(
        "com.rocketmq.remoting.clientAsyncSemaphoreValue", 65535, "Requests that may be under way at once.", min=1
    )
    oneway_permits: int = option(
        "com.rocketmq.remoting.clientOnewaySemaphoreValue",
        65535,
        "One-way requests that may wait to be written.",
        min=1,
    )
    high_water: int = option(
        "com.rocketmq.remoting.client.writeBufferHighWaterMark",
        1 * MiB,
        "Bytes waiting to be written to a connection before senders wait.",
        min=1,
        size=True,
    )
    max_frame: int = option(
        "com.rocketmq.remoting.frameMaxLength",
        16 * MiB,
        "Largest frame to take or send. Java peers refuse more than 16 MiB, so raise it only for your own.",
        min=1024,
        max=2**31 - 1,
        size=True,
    )
