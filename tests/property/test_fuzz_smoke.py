"""A short run of every fuzz target, and proof that the fuzzer would notice. `make fuzz` runs them for longer."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from fuzz import corpus, run
from fuzz.engine import Fuzzer
from fuzz.mutate import MAX_LENGTH, MAX_LONG
from fuzz.targets import REFUSALS, TARGETS, Target

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import bodies

INPUTS = 2000
# An address is right or wrong in few ways.
FEW_OUTCOMES = {"addresses": 5}


@pytest.mark.parametrize("target", TARGETS)
def test_any_bytes_end_in_a_value_or_in_a_typed_error(target):
    report = Fuzzer(target, seed=20240607).run(inputs=INPUTS)
    assert [(failure.error, failure.sample) for failure in report.failures] == []
    assert report.inputs == INPUTS
    # Mutation that only ever breaks things, or never, would prove nothing.
    assert report.accepted > INPUTS // 50
    assert report.rejected > INPUTS // 50
    assert report.outcomes > FEW_OUTCOMES.get(target, 10)


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_read_and_most_of_it_accepted(target):
    accepted = 0
    samples = corpus.read(target)
    for sample in samples:
        try:
            TARGETS[target].check(*sample)
            accepted += 1
        except REFUSALS:
            continue
    assert accepted > len(samples) // 2


def test_the_corpus_has_a_sample_of_every_body():
    kinds = {name for name in bodies.__all__ if isinstance(getattr(bodies, name), type)}
    kinds = {name for name in kinds if issubclass(getattr(bodies, name), bodies.Body)}
    texts = b"".join(sample.data for sample in corpus.read("bodies"))
    labels = {sample.label for sample in corpus.read("bodies")}
    # What only occurs inside of another body needs no line of its own.
    inside = {
        "BatchAck",
        "Body",
        "Connection",
        "ConsumeStatus",
        "ConsumerData",
        "CustomizedRetryPolicy",
        "EpochEntry",
        "ExponentialRetryPolicy",
        "GroupRetryPolicy",
        "HAClientInfo",
        "HAConnectionInfo",
        "HARefusal",
        "MessageQueueAssignment",
        "OffsetWrapper",
        "OrderInfo",
        "PlainAccessConfig",
        "PolicyEntryInfo",
        "PolicyInfo",
        "PopProcessQueueInfo",
        "ReplicaIdentity",
        "ReplicasInfo",
        "ProcessQueueInfo",
        "ProducerData",
        "SubscriptionData",
        "TopicOffset",
    }
    assert kinds - inside <= labels
    assert len(texts) < 100_000


def test_the_same_seed_gives_the_same_inputs():
    def seen(seed: int) -> list[bytes]:
        fuzzer = Fuzzer("headers", seed)
        inputs = []
        for _ in range(300):
            sample = fuzzer._next_sample()
            inputs.append(sample.data)
            fuzzer._try(sample)
        return inputs

    assert seen(1) == seen(1)
    assert seen(1) != seen(2)


# The fuzzer itself


def broken(_label: str, data: bytes) -> int:
    if b"\x00" not in data:
        raise RemoteProtocolError("fine")
    if data.count(b"\x00") > 3:
        raise KeyError("not fine")
    return 1


@pytest.fixture
def target(monkeypatch):
    """Puts a check of a test's own in the place of a target and starts from its corpus."""

    def install(check) -> str:
        monkeypatch.setitem(TARGETS, "frames", Target(check, [b"token"]))
        return "frames"

    return install


def test_an_error_of_another_kind_is_found_and_made_small(target):
    report = Fuzzer(target(broken), seed=1).run(inputs=200)
    assert report.failed > 0
    assert len(report.failures) == 1  # of each kind the first
    assert report.failures[0].sample.data == b"\x00" * 4
    assert "KeyError" in report.failures[0].error
    assert report.accepted + report.rejected + report.failed == report.inputs == 200


def test_a_failure_is_saved_and_replayed(target, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "FAILURES", tmp_path)
    name = target(broken)
    run.show(name, Fuzzer(name, seed=1).run(inputs=200))
    (path,) = tmp_path.iterdir()
    assert f"--replay {path}" in capsys.readouterr().out
    assert corpus.load(path) == (name, corpus.Sample("-", b"\x00" * 4))
    assert run.main(["--replay", str(path)]) == 1
    output = capsys.readouterr()
    assert "FAILED" in output.out
    assert "KeyError: 'not fine'" in output.err


def hang(_label: str, _data: bytes) -> int:
    while True:
        pass


def allocate(_label: str, _data: bytes) -> int:
    return len(bytearray(1 << 40))


def die(_label: str, _data: bytes) -> int:
    os._exit(3)


def get_stuck(_label: str, _data: bytes) -> int:
    """As in a call into C: no signal handler of Python's runs."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    return hang(_label, _data)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is not kept elsewhere")
@pytest.mark.parametrize(
    ("check", "error"),
    [(hang, "Hang"), (allocate, "MemoryError"), (die, "process ended with 3"), (get_stuck, "process ended with -9")],
)
def test_a_process_of_its_own_survives_what_would_end_this_one(check, error, target, monkeypatch):
    monkeypatch.setattr(run, "HANG_SECONDS", 0.1)
    monkeypatch.setattr(run, "STUCK_SECONDS", 0.7)
    report = run.fuzz(target(check), seed=1, jobs=1, inputs=1, seconds=None)
    (failure,) = report.failures
    assert failure.error.startswith(error)
    # What ends in an exception is made small, here as small as can be.
    assert failure.sample == (corpus.Sample("-", b"") if check is allocate else corpus.read("frames")[0])


def test_the_longest_inputs_fit_into_the_memory_that_is_shared():
    fuzzer = Fuzzer("frames", seed=1)
    longest = max((fuzzer._mutator.lengthen(sample.data) for sample in fuzzer._pool for _ in range(20)), key=len)
    assert MAX_LENGTH < len(longest) < 2 * MAX_LONG - 64
