"""How much of the log may be in memory, in and out of containers."""

from __future__ import annotations

import os

import pytest

from pyromq.store.memory import available_memory

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
V2, V1 = "memory.max", "memory/memory.limit_in_bytes"


def memory(tmp_path, own, files):
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "cgroups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return available_memory(tmp_path / "cgroups", tmp_path / "own")


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/\n", {V2: "67108864\n"}, 64 << 20),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "67108864\n"}, 64 << 20),
        ("0::/a/b\n", {"a/b/memory.max": "67108864\n", "a/memory.max": "99999999\n"}, 64 << 20),
        ("0::/docker/1f\n", {V2: "67108864\n"}, 64 << 20),
        ("5:cpu,memory:/\n0::/\n", {V1: "67108864\n"}, 64 << 20),
        ("5:memory:/docker/1f\n", {"memory/docker/1f/memory.limit_in_bytes": "67108864\n"}, 64 << 20),
        ("5:memory:/docker/1f\n", {V1: "67108864\n"}, 64 << 20),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path, own, files, limit):
    assert memory(tmp_path, own, files) == limit


@pytest.mark.parametrize(
    ("own", "files"),
    [
        ("0::/\n", {}),
        ("0::/\n", {V2: "max\n"}),
        ("0::/\n", {V2: "0\n"}),
        ("0::/\n", {V2: "nonsense\n"}),
        ("0::/\n", {V2: f"{2 * PHYSICAL}\n"}),
        ("5:memory:/\n", {V1: "9223372036854771712\n"}),  # no limit
        ("5:memory:/\n", {V2: "67108864\n"}),  # the file of the other version
        ("7:cpu:/\n", {V1: "67108864\n"}),
        ("no such line\n", {V2: "67108864\n"}),
        ("", {V2: "67108864\n"}),
    ],
)
def test_without_a_lower_limit_the_machine_counts(tmp_path, own, files):
    assert memory(tmp_path, own, files) == PHYSICAL


def test_a_machine_without_control_groups_counts(tmp_path):
    assert available_memory(tmp_path / "none", tmp_path / "none") == PHYSICAL
    assert 0 < available_memory() <= PHYSICAL
