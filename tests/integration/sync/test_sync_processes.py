"""Programs that use the blocking clients: forked, interrupted, and ended without a goodbye."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from tests.integration.sync.background_kit import PATIENCE

from pyromq.sync import AdminClient, Producer


@contextlib.contextmanager
def started(source, *args):
    """A program that runs; killed if it does so longer than a test has patience for."""
    command = [sys.executable, "-c", textwrap.dedent(source), *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        too_long = threading.Timer(2 * PATIENCE, program.kill)
        too_long.start()
        try:
            yield program
        finally:
            too_long.cancel()
            program.kill()


def run(source, *args):
    with started(source, *args) as program:
        said, errors = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, errors
    return said.split("\n")[:-1], errors


@pytest.mark.slow
@pytest.mark.scenario("client 57")
def test_a_forked_child_cannot_use_what_it_inherited_and_can_make_its_own(cluster):
    said, _ = run(
        """
        import os, sys, threading
        from pyromq import StartAt
        from pyromq.errors import StateError
        from pyromq.sync import AdminClient, Consumer, Producer, PullConsumer

        def refused(function, *args):
            try:
                function(*args)
            except StateError as exc:
                print("refused" if "parent process" in str(exc) else exc, flush=True)

        producer = Producer("senders", namesrv=sys.argv[1]).start()
        producer.send("orders", b"parent")
        consumer = Consumer("group", {"orders": "*"}, namesrv=sys.argv[1], start_at=StartAt.FIRST).start()
        messages = iter(consumer)
        next(messages)
        admin = AdminClient(sys.argv[1]).start()
        pull = PullConsumer("pulling", {"orders": "*"}, namesrv=sys.argv[1]).start()
        child = os.fork()
        if not child:
            refused(producer.send, "orders", b"child")
            refused(producer.submit, "orders", b"child")
            refused(next, messages)
            refused(iter, consumer)
            refused(admin.topics.names)
            refused(pull.poll)
            with Producer("senders", namesrv=sys.argv[1]) as own:
                print(own.send("orders", b"child").status.name, flush=True)
            print([thread.name for thread in threading.enumerate()].count("pyromq.sync"), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(producer.send("orders", b"parent").status.name, next(messages).body in (b"child", b"parent"))
        del messages
        for each in (pull, admin, consumer, producer):
            each.close()
        """,
        cluster.namesrv,
    )
    assert said == ["refused"] * 6 + ["SEND_OK", "1", "SEND_OK True"]


@pytest.mark.slow
def test_ctrl_c_ends_a_consumer_after_its_handlers_and_commits(cluster):
    with Producer("senders", namesrv=cluster.namesrv) as producer:
        producer.send("orders", b"body")
    with started(
        """
        import sys, time
        from pyromq import StartAt
        from pyromq.sync import Consumer

        consumer = Consumer("group", namesrv=sys.argv[1], start_at=StartAt.FIRST)

        @consumer.on("orders")
        def handle(message):
            print("handling", flush=True)
            time.sleep(0.5)
            print("handled", flush=True)

        try:
            consumer.run()
        except KeyboardInterrupt:
            print(consumer, flush=True)
        """,
        cluster.namesrv,
    ) as program:
        assert program.stdout.readline() == "handling\n"
        program.send_signal(signal.SIGINT)
        said, errors = program.communicate(timeout=PATIENCE)
    assert (said, errors, program.returncode) == ("handled\n<pyromq.sync Consumer group closed>\n", "", 0)
    with AdminClient(cluster.namesrv) as admin:
        assert admin.groups.progress("group", "orders").lag == 0


@pytest.mark.slow
def test_a_program_that_closes_nothing_ends_quietly_and_loses_nothing(cluster):
    cluster.do("create_topic", "orders")
    said, errors = run(
        """
        import sys
        from pyromq.sync import Consumer, Producer

        producer = Producer("senders", namesrv=sys.argv[1], linger=0.05).start()
        Consumer("group", {"orders": "*"}, namesrv=sys.argv[1]).start()
        for _ in range(10):
            producer.submit("orders", b"body")
        print("done")
        """,
        cluster.namesrv,
    )
    assert (said, errors) == (["done"], "")
    with AdminClient(cluster.namesrv) as admin:
        assert sum(ends.max_offset for ends in admin.topics.stats("orders").values()) == 10
