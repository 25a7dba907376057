"""The service against a real broker, which PyroMQ's pytest plugin starts for each test."""

from __future__ import annotations

from shipping import Shipping


def test_a_paid_order_is_shipped(pyromq_broker):
    pyromq_broker.send("orders", b'{"id": 7}', tags="paid")
    pyromq_broker.send("orders", b'{"id": 8}', tags="cancelled")
    with Shipping(pyromq_broker.namesrv):
        [shipment] = pyromq_broker.wait_for("shipments")
        pyromq_broker.wait_until_consumed("shipping")
    assert shipment.body == b'{"order": 7}'
    assert shipment.keys == ["7"]
    assert len(pyromq_broker.messages("shipments")) == 1


def test_what_is_no_order_is_a_dead_letter(pyromq_broker):
    pyromq_broker.send("orders", b"hello", tags="paid")
    with Shipping(pyromq_broker.namesrv):
        [dead] = pyromq_broker.wait_for("%DLQ%shipping")
    assert dead.body == b"hello"


def test_the_broker_of_the_session_is_there_too(pyromq_session_broker):
    pyromq_session_broker.create_topic("prices", queues=1)
    sent = [pyromq_session_broker.send("prices", b"%d" % number).offset for number in range(3)]
    assert sent == [0, 1, 2]
    found = pyromq_session_broker.wait_for("prices", 2, where=lambda message: message.body != b"1")
    assert [message.body for message in found] == [b"0", b"2"]
