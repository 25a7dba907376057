"""The address server: an HTTP page whose first line lists name servers, as RocketMQ's own programs use it."""

from __future__ import annotations

import asyncio

from pyromq.errors import ConnectFailed

from .addresses import split_addresses

_TIMEOUT = 3
_LONGEST_LIST = 64 * 1024


def lookup_url(domain: str, subgroup: str, unit: str = "") -> str:
    """The URL of the list; a domain without a port uses 8080. `unit` names a separate environment."""
    host = domain if ":" in domain else f"{domain}:8080"
    return f"http://{host}/rocketmq/{subgroup}" + (f"-{unit}?nofix=1" if unit else "")


async def look_up(url: str) -> list[str]:
    """The addresses listed at `url`. ConnectFailed without an answer, ValueError if the answer is not such a list."""
    return split_addresses(await asyncio.to_thread(_first_line, url))


def _first_line(url: str) -> str:
    # Imported here: it takes as long as the rest of a name server, and few need it.
    import http.client
    import urllib.request

    # RocketMQ asks directly, even if the environment names a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT) as response:
            text: str = response.read(_LONGEST_LIST).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as exc:
        raise ConnectFailed(url, str(exc) or type(exc).__name__) from exc
    return text.strip().partition("\n")[0].strip()
