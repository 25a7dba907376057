"""Names of versions, against the numbers of docs/spec/remoting.md 1.8 and docs/spec/broker.md 0."""

from __future__ import annotations

import pytest

from pyromq.protocol.versions import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT, version_name


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (0, "V3_0_0_SNAPSHOT"),
        (8, "V3_0_0_BETA6"),
        (15, "V3_0_0_FINAL"),
        (V3_0_7_SNAPSHOT, "V3_0_7_SNAPSHOT"),
        (37, "V3_0_11"),
        (V3_1_8_SNAPSHOT, "V3_1_8_SNAPSHOT"),
        (121, "V3_4_9"),
        (232, "V4_1_0_SNAPSHOT"),
        (399, "V4_9_3"),
        (401, "V4_9_4"),
        (407, "V4_9_7"),
        (409, "V4_9_8"),
        (413, "V5_0_0"),
        (475, "V5_3_1"),
        (479, "V5_3_3"),
        (513, "V5_5_0"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
    ],
)
def test_a_version_has_the_name_of_its_release(version, name):
    assert version_name(version) == name


@pytest.mark.parametrize(("version", "name"), [(613, "HIGHER_VERSION"), (2**31 - 1, "HIGHER_VERSION")])
def test_a_version_from_the_future_is_a_higher_one(version, name):
    assert version_name(version) == name


def test_a_negative_version_is_the_oldest():
    assert version_name(-1) == "V3_0_0_SNAPSHOT"
