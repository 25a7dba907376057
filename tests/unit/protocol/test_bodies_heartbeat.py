"""Heartbeats as the clients of each language send them."""

from __future__ import annotations

import pytest

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)

CONSUMER = (
    '{{"clientID":"c","consumerDataSet":[{{"groupName":"g","consumeType":{},"messageModel":{},'
    '"consumeFromWhere":{}}}]}}'
)


def consumer(consume_type="null", message_model="null", from_where="null") -> ConsumerData:
    text = CONSUMER.format(consume_type, message_model, from_where)
    return HeartbeatData.decode(text.encode()).consumer_data_set[0]


def test_cpp_sends_ordinals_and_leaves_out_empty_sets():
    text = (
        '{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":0,'
        '"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[65],"expressionType":"TAG","subString":"A",'
        '"subVersion":"1700000000123","tagsSet":["A"],"topic":"orders"}],"unitMode":false}]}\n'
    )
    heartbeat = HeartbeatData.decode(text.encode())
    assert heartbeat.producer_data_set == []
    data = heartbeat.consumer_data_set[0]
    assert data.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert data.message_model is MessageModel.BROADCASTING
    assert data.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert data.subscription_data_set[0].sub_version == 1700000000123


def test_go_sends_codes_as_text():
    subscription = '{"topic":"t","codeSet":["65","-7"]}'
    text = f'{{"clientID":"c","consumerDataSet":[{{"groupName":"g","subscriptionDataSet":[{subscription}]}}]}}'
    assert HeartbeatData.decode(text.encode()).consumer_data_set[0].subscription_data_set[0].code_set == {65, -7}


def test_node_sends_its_own_order():
    text = (
        '{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"unitMode":false,"groupName":"g",'
        '"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        '"subscriptionDataSet":[]}]}'
    )
    assert HeartbeatData.decode(text.encode()) == HeartbeatData(
        client_id="c",
        producer_data_set=[ProducerData("p")],
        consumer_data_set=[
            ConsumerData(
                group_name="g",
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            )
        ],
    )


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [("0", "CONSUME_FROM_LAST_OFFSET"), ("4", "CONSUME_FROM_FIRST_OFFSET"), ('"5"', "CONSUME_FROM_TIMESTAMP")],
)
def test_the_ordinals_are_javas(ordinal, name):
    assert consumer(from_where=ordinal).consume_from_where is ConsumeFromWhere(name)


@pytest.mark.parametrize("text", ['"CONSUME_SOMEHOW"', '""', "99", "-1", "null", '"99"', '"²"', '"consume_passively"'])
def test_an_unknown_enum_is_null_and_left_out_again(text):
    data = consumer(consume_type=text)
    assert data.consume_type is None
    assert data.encode() == b'{"groupName":"g","subscriptionDataSet":[],"unitMode":false}'


def test_ordinals_of_5x_are_known():
    data = consumer("2", "2")
    assert data.consume_type is ConsumeType.CONSUME_POP
    assert data.message_model is MessageModel.LITE_SELECTIVE


def test_sets_compare_as_sets():
    one, two = (
        SubscriptionData.decode(f'{{"topic":"t","tagsSet":{tags}}}'.encode()) for tags in ('["A","B"]', '["B","A"]')
    )
    assert one == two


def test_null_elements_are_dropped():
    text = b'{"clientID":"c","producerDataSet":[null,{"groupName":"p"}]}'
    assert HeartbeatData.decode(text).producer_data_set == [ProducerData("p")]


def test_a_group_needs_a_name():
    with pytest.raises(RemoteProtocolError, match="groupName"):
        HeartbeatData.decode(b'{"clientID":"c","consumerDataSet":[{"unitMode":false}]}')
