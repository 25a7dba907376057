"""Both ends of a line prove that they know a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.replication.proof import (
    HELLO_SIZE,
    MAGIC,
    PROOF_SIZE,
    WRONG_SECRET,
    MasterProof,
    NotProven,
    SlaveProof,
    refusal,
)

SECRET = "correct horse"


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@given(st.integers(1, 40), st.binary(max_size=32))
def test_both_are_convinced_in_whatever_pieces_the_bytes_come(size: int, fingerprint: bytes):
    master, slave = MasterProof(SECRET, fingerprint), SlaveProof(SECRET, fingerprint)
    hello = slave.hello()
    assert len(hello) == HELLO_SIZE
    (*_, answer) = [slave.feed(piece) for piece in pieces(master.challenge(hello), size)]
    assert len(answer) == PROOF_SIZE
    assert not slave.is_done
    for piece in pieces(master.checked(answer), size):
        assert slave.feed(piece) == b""
    assert slave.is_done


@pytest.mark.parametrize(
    ("secret", "fingerprint"), [("another", b"certificate"), (SECRET, b"somebody in between"), (SECRET, b"")]
)
def test_another_secret_or_certificate_convinces_neither(secret: str, fingerprint: bytes):
    master, slave = MasterProof(secret, fingerprint), SlaveProof(SECRET, b"certificate")
    answer = slave.feed(master.challenge(slave.hello()))
    with pytest.raises(NotProven, match=WRONG_SECRET):
        master.checked(answer)
    with pytest.raises(NotProven, match="it refuses this slave: " + WRONG_SECRET):
        slave.feed(refusal(WRONG_SECRET))


def test_a_master_that_passes_a_wrong_slave_on_is_found_out():
    class Careless(MasterProof):
        def checked(self, proof: bytes) -> bytes:
            return b"=" + proof  # what it heard, said back

    slave = SlaveProof(SECRET)
    master = Careless("another")
    answer = slave.feed(master.challenge(slave.hello()))
    with pytest.raises(NotProven, match="does not know the haSecret of this slave"):
        slave.feed(master.checked(answer))


def test_no_two_proofs_are_the_same():
    """What was overheard is of no use later."""
    master, slave = MasterProof(SECRET), SlaveProof(SECRET)
    hello = slave.hello()
    overheard = slave.feed(master.challenge(hello))
    again = MasterProof(SECRET)
    again.challenge(hello)
    with pytest.raises(NotProven):
        again.checked(overheard)


@pytest.mark.parametrize("hello", [b"\0" * HELLO_SIZE, b"\0", MAGIC[:-1] + b"2" + bytes(32)])
def test_a_slave_that_says_something_else_is_refused(hello: bytes):
    with pytest.raises(NotProven, match="does not prove that it knows haSecret"):
        MasterProof(SECRET).challenge(hello)


@given(st.binary(max_size=200), st.booleans())
def test_whatever_a_master_says_a_slave_goes_on_or_says_why_not(data: bytes, is_second: bool):
    slave = SlaveProof(SECRET)
    if is_second:
        slave.feed(MasterProof(SECRET).challenge(slave.hello()))
    try:
        slave.feed(data)
    except NotProven as exc:
        assert str(exc).isprintable()  # noqa: PT017 - both ends are right
    assert not slave.is_done


def test_a_refusal_of_any_length_is_told_in_part():
    slave = SlaveProof(SECRET)
    with pytest.raises(NotProven) as told:
        slave.feed(refusal("ü" * 10_000))
    assert "ü" * 100 in str(told.value)
