from __future__ import annotations

import multiprocessing
import os
import re
import threading
import warnings
from datetime import UTC, datetime, timedelta, timezone

import pytest

from pyromq.client import identity
from pyromq.protocol.ids import UniqKeys, decode_uniq_key, encode_ip


def test_a_client_id_is_made_of_its_parts():
    assert identity.client_id("10.0.0.1", "7#1") == "10.0.0.1@7#1"
    assert identity.client_id("10.0.0.1", "DEFAULT", "blue") == "10.0.0.1@DEFAULT@blue"
    assert identity.client_id("10.0.0.1", "7#1", "blue", stream=True) == "10.0.0.1@7#1@blue@STREAM"


@pytest.mark.scenario("client 1")
def test_an_instance_name_holds_the_process_and_is_never_the_same():
    names = {identity.instance_name() for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(rf"{os.getpid()}#\d+", name) for name in names)


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        (["127.0.0.1", "192.168.1.2", "10.0.0.5", "10.0.0.6"], "10.0.0.5"),
        (["127.0.0.1", "192.168.1.2", "192.168.1.3", "2001:db8::1"], "192.168.1.3"),
        (["::1", "2001:db8::1", "2001:db8::2"], "2001:db8::1"),
        (["127.0.0.1", "::1"], None),
        ([], None),
    ],
)
def test_the_address_of_a_client_is_the_one_others_most_likely_know(addresses, chosen):
    assert identity.choose_ip(addresses) == chosen


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        (["127.0.0.1", "10.0.0.5", "8.8.4.4", "1.1.1.1"], "8.8.4.4"),
        (["10.0.0.5", "2606:4700::1"], "2606:4700::1"),
        (["127.0.0.1", "169.254.0.1", "fe80::1", "fd00::1", "10.0.0.5", "192.168.1.2"], "10.0.0.5"),
    ],
)
def test_message_ids_hold_a_public_address_if_there_is_one(addresses, chosen):
    assert identity.key_ip(addresses) == encode_ip(chosen)


def test_message_ids_hold_the_time_where_there_is_no_address():
    assert len(identity.key_ip(["127.0.0.1", "::1"])) == 4


def test_this_machine_has_an_address():
    assert encode_ip(identity.client_ip())


@pytest.mark.scenario("client 16")
def test_a_message_id_is_laid_out_as_java_does():
    when = datetime(2024, 5, 15, 10, 30, 0, 123_000, UTC)
    frozen = int(when.timestamp() * 1000)
    keys = UniqKeys(encode_ip("192.168.1.10"), 12345, 0x18B4AAC2, clock=lambda: frozen, zone=UTC)
    for _ in range(7):
        keys.next()
    assert keys.next() == "C0A8010A303918B4AAC24A59D0BB0007"
    east = timezone(timedelta(hours=8))
    assert UniqKeys(bytes(4), 1, 1, clock=lambda: frozen, zone=east).next()[20:28] != "4A59D0BB"


@pytest.mark.scenario("client 16")
def test_seventy_thousand_ids_of_one_moment_wrap_the_counter():
    keys = UniqKeys(bytes(4), 1, 1, clock=lambda: 1_700_000_000_000, zone=UTC)
    counters = [decode_uniq_key(keys.next()).counter for _ in range(70_000)]
    assert counters[65_535:65_538] == [65_535, 0, 1]


def test_message_ids_are_different_and_share_a_prefix():
    keys = [identity.make_uniq_key() for _ in range(100)]
    assert len(set(keys)) == 100
    parts = [decode_uniq_key(key) for key in keys]
    assert {(part.ip, part.pid, part.number) for part in parts} == {
        (parts[0].ip, os.getpid() & 0xFFFF, parts[0].number)
    }


def test_threads_do_not_share_a_counter():
    found = []
    thread = threading.Thread(target=lambda: found.append(decode_uniq_key(identity.make_uniq_key())))
    thread.start()
    thread.join()
    assert found[0].number != decode_uniq_key(identity.make_uniq_key()).number


def _tell(queue):
    queue.put((identity.fork_generation(), identity.make_uniq_key(), identity.instance_name()))


@pytest.mark.scenario("client 16")
@pytest.mark.scenario("client 57")
def test_a_forked_process_is_somebody_else():
    mine = decode_uniq_key(identity.make_uniq_key())
    fork = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()
    child = fork.Process(target=_tell, args=(queue,))
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # newer Pythons warn of threads
        child.start()
    generation, key, instance = queue.get()
    child.join(10)
    queue.close()
    assert child.pid is not None
    assert generation == identity.fork_generation() + 1
    assert decode_uniq_key(key).number != mine.number
    assert decode_uniq_key(key).pid == child.pid & 0xFFFF
    assert instance.startswith(f"{child.pid}#")
