"""Settings of both ends of a connection, under the names of RocketMQ's network layer."""

from __future__ import annotations

from dataclasses import dataclass

from pyromq.settings import KiB, MiB, option


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How a server listens, and its limits."""

    bind_address: str = option("bindAddress", "0.0.0.0", "Address to listen on. 127.0.0.1 allows only this machine.")
    listen_port: int = option("listenPort", 9876, "Port to listen on; 0 picks a free one.", min=0, max=65535)
    backlog: int = option(
        "serverSocketBacklog", 1024, "Connections that the system queues before they are accepted.", min=1
    )
    send_buffer: int = option(
        "serverSocketSndBufSize", 0, "Bytes of the socket's send buffer; 0 leaves it to the system.", min=0
    )
    receive_buffer: int = option(
        "serverSocketRcvBufSize", 0, "Bytes of the socket's receive buffer; 0 leaves it to the system.", min=0
    )
    max_idle_seconds: int = option(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "Close a connection that is idle for this long.",
        min=1,
    )
    async_permits: int = option(
        "serverAsyncSemaphoreValue", 64, "Most requests from the server to clients in flight.", min=1
    )
    oneway_permits: int = option(
        "serverOnewaySemaphoreValue", 256, "Most one-way requests from the server waiting to be written.", min=1
    )
    high_water: int = option(
        "writeBufferHighWaterMark",
        0,
        "Stop reading requests from a connection while more bytes than this wait to be written to it; 0 means 1 MiB.",
        min=0,
        size=True,
    )
    low_water: int = option(
        "writeBufferLowWaterMark",
        0,
        "Resume reading when fewer bytes than this wait; 0 means a quarter of the high mark.",
        min=0,
        size=True,
    )
    max_unsent: int = option(
        "maxUnsentBytes",
        64 * MiB,
        "Most bytes that wait for one connection: its peer has stopped reading.",
        min=16 * MiB,
        size=True,
        limit="the connection is closed; from 1 MiB on, its requests are left unread",
    )
    max_frame: int = option(
        "com.rocketmq.remoting.frameMaxLength",
        16 * MiB,
        "Largest frame to accept or send. Java peers refuse more than 16 MiB, so raise it only between PyroMQ peers.",
        min=1024,
        max=2**31 - 1,
        size=True,
        limit="the connection is closed",
    )
    max_request_header: int = option(
        "maxRequestHeaderSize",
        256 * KiB,
        "Largest header of a request, with the properties of a message or the value of a KV config key. Clients send "
        "at most 32 KiB of properties.",
        min=64 * KiB,
        size=True,
        limit="the connection is closed",
    )
    max_connections: int = option(
        "maxConnections",
        65535,
        "Most open connections.",
        min=1,
        limit="a new connection is closed at once, and the log says why",
    )
    max_connections_per_address: int = option(
        "maxConnectionsPerAddress",
        16384,
        "Most open connections from one address; 0 means no limit. Raise it if very many clients come through one "
        "gateway, lower it if strangers can connect.",
        min=0,
        limit="a new connection is closed at once, and the log says why",
    )
    max_bad_connections_per_second: int = option(
        "maxBadConnectionsPerSecond",
        50,
        "Connections of one address in a second that send something other than the protocol; 0 means no limit.",
        min=0,
        limit="new connections from that address are closed at once for the rest of the second",
    )
    max_requests_per_second: int = option(
        "maxRequestsPerSecond",
        0,
        "Requests a second of one account, or of one address if requests are not signed; 0 means no limit. A burst of "
        "a second's worth passes.",
        min=0,
        hot=True,
        limit="code 2; then nothing is read from that connection for a moment",
    )
    max_bytes_per_second: int = option(
        "maxBytesPerSecond",
        0,
        "Bytes a second sent by one account, or by one address if requests are not signed; 0 means no limit. What "
        "consumers read does not count.",
        min=0,
        size=True,
        hot=True,
        limit="code 2; then nothing is read from that connection for a moment",
    )
    max_running_requests: int = option(
        "maxRunningRequests",
        10000,
        "Most waiting requests over all connections.",
        min=1,
        limit="code 2, system busy",
    )
    max_request_body: int = option(
        "maxRequestBodySize",
        1 * MiB,
        "Largest body of a heartbeat, of a list of queues to lock and the like. Raise it for clients with thousands of "
        "subscriptions; messages have maxMessageSize. Bodies of all other requests, such as changed settings, may "
        "have 64 KiB.",
        min=64 * KiB,
        size=True,
        limit="code 1",
    )
    max_unfinished: int = option(
        "maxUnfinishedBytes",
        256 * MiB,
        "Bytes of requests that have begun and not ended, over all connections. With more, the largest silent one is "
        "closed. Raise it for hundreds of clients that send large messages over slow lines.",
        min=16 * MiB,
        size=True,
        limit="the connection that holds much and has been silent longest is closed",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client connects, and its limits."""

    connect_timeout: float = option(
        "com.rocketmq.remoting.client.connect.timeout.seconds", 3.0, "Seconds to wait for a connection.", min=0.01
    )
    max_idle_seconds: int = option(
        "com.rocketmq.remoting.client.idle.timeout.seconds",
        120,
        "Close a connection that is idle for this long.",
        min=1,
    )
    async_permits: int = option(
        "com.rocketmq.remoting.clientAsyncSemaphoreValue", 65535, "Most requests in flight.", min=1
    )
    oneway_permits: int = option(
        "com.rocketmq.remoting.clientOnewaySemaphoreValue",
        65535,
        "Most one-way requests waiting to be written.",
        min=1,
    )
    high_water: int = option(
        "com.rocketmq.remoting.client.writeBufferHighWaterMark",
        1 * MiB,
        "Make senders wait while more bytes than this wait to be written to a connection.",
        min=1,
        size=True,
    )
    max_frame: int = option(
        "com.rocketmq.remoting.frameMaxLength",
        16 * MiB,
        "Largest frame to accept or send. Java peers refuse more than 16 MiB, so raise it only between PyroMQ peers.",
        min=1024,
        max=2**31 - 1,
        size=True,
    )
