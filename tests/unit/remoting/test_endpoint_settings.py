"""How settings become limits."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from pyromq.remoting import ClientConfig, Endpoint, RemotingClient, RemotingServer, ServerConfig, TlsConfig
from pyromq.settings import MiB, Settings


def test_the_water_marks_have_defaults_and_stay_in_order():
    def marks(**settings: Any) -> tuple[int, int]:
        endpoint = RemotingServer(ServerConfig(**settings), {}).endpoint
        return endpoint.low_water, endpoint.high_water

    assert marks() == (MiB // 4, MiB)
    assert marks(high_water=4000) == (1000, 4000)
    assert marks(high_water=4000, low_water=2000) == (2000, 4000)
    assert marks(high_water=4000, low_water=9000) == (4000, 4000)


def test_a_single_frame_always_fits_below_the_limit_of_unsent_bytes():
    assert Endpoint().max_unsent == 64 * MiB
    endpoint = RemotingServer(ServerConfig(max_unsent=16 * MiB, max_frame=64 * MiB), {}).endpoint
    assert endpoint.max_unsent > endpoint.high_water + endpoint.max_frame


def test_the_reference_limits_are_the_defaults():
    server = RemotingServer(ServerConfig(), {}).endpoint
    client = RemotingClient().endpoint
    assert (server.async_permits, server.oneway_permits) == (64, 256)
    assert (client.async_permits, client.oneway_permits) == (65535, 65535)
    assert server.max_frame == client.max_frame == 16 * MiB


def test_all_settings_can_be_loaded_together_by_their_reference_keys():
    settings = Settings.load(
        ServerConfig,
        TlsConfig,
        sets=["serverChannelMaxIdleTimeSeconds=5", "tls.server.mode=enforcing", "serverSocketBacklog=7"],
    )
    assert settings[ServerConfig].max_idle_seconds == 5
    assert settings[ServerConfig].backlog == 7
    assert settings[TlsConfig].mode.value == "enforcing"
    client = Settings.load(ClientConfig, sets=["com.rocketmq.remoting.frameMaxLength=32m"])
    assert client[ClientConfig].max_frame == 32 * MiB


def test_importing_remoting_does_not_import_what_only_a_certificate_needs():
    program = "import sys, pyromq.remoting; print([m for m in ('cryptography', 'uvloop') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
