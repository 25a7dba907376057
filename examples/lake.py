"""Archives the topic `orders` in a lake, asks about history and live as one, and sends what matters again.

python examples/lake.py [NAMESRV [LAKE]]
"""

import sys

import pyromq.spark as mq


def main(namesrv: str = "localhost:9876", lake: str = "lake") -> None:
    spark = mq.session(namesrv)

    # Exactly once, and only what is new: run it as often as you like, or leave it running without `once`.
    done = mq.archive(spark, ["orders"], root=lake, namesrv=namesrv, once=True)
    print(f"archived {done.rows} messages")

    # History from the lake, what came since from the broker.
    orders = mq.unified(spark, "orders", lake=lake, namesrv=namesrv)
    orders.groupBy("tags").count().orderBy("tags").show()

    # The same in SQL. The views show what is there when they are asked.
    mq.register_topics(spark, namesrv, pattern="orders", lake=lake)
    spark.sql("SELECT count(*) AS archived FROM orders_lake").show()
    spark.sql("SELECT max(storeTimestamp) AS newest FROM orders_all").show()

    # Replay: a query chooses, the sink sends.
    paid = spark.sql("SELECT body, tags, keys FROM orders_lake WHERE tags = 'paid'")
    target = {"namesrv": namesrv, "topic": "orders-again", "createTopic": "4"}
    paid.write.format("rocketmq").options(**target).mode("append").save()
    print(f"sent {paid.count()} again")

    print(mq.headroom(namesrv, "orders", lake=lake))


if __name__ == "__main__":
    main(*sys.argv[1:])
