"""KV config in the log of a name server, now and then, for those who look for what was set."""

from __future__ import annotations

import asyncio
import logging


async def test_all_of_it_is_logged_again_and_again(start, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("pyromq.namesrv.server._FIRST_KV_LOG", 0.01)
    monkeypatch.setattr("pyromq.namesrv.server._KV_LOG_PERIOD", 0.01)
    (tmp_path / "kvConfig.json").write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:8"}}}')
    caplog.set_level(logging.INFO, "pyromq.namesrv")
    async with start(), asyncio.timeout(10):
        # A log tells nobody that it has a new line.
        while caplog.text.count("namespace=ORDER_TOPIC_CONFIG key=orders value=broker-a:8") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert "KV config has 1 keys" in caplog.text
