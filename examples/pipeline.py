"""The shop's Spark pipeline: the topics of orders and payments become a topic of paid orders and a table of revenue.

python examples/pipeline.py [name server, default localhost:9876] [folder, default shop-pipeline]

Both queries are streams with checkpoints: after a kill and a restart they continue where they were.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

import pyromq.spark as mq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ORDER = "id string, customer string, product string, amount int, price double"
PAYMENT = "order string, total double"
PAID = "id string, product string, amount int, total double"

# The queries report their progress to these groups, so that any tool shows the pipeline's lag.
GROUPS = {"orders": "spark-paid", "payments": "spark-paid", "paid-orders": "spark-revenue"}


def bodies(spark: SparkSession, namesrv: str, topic: str, schema: str) -> DataFrame:
    """What the messages of a topic say, from the first one on, with the time at which each was stored."""
    messages = mq.stream(spark, topic, namesrv, startingOffsets="earliest", consumerGroup=GROUPS[topic])
    said = f.from_json(f.col("body").cast("string"), schema)
    return messages.select(said.alias("it"), "storeTimestamp").select("it.*", "storeTimestamp")


def paid_orders(spark: SparkSession, namesrv: str, folder: Path) -> StreamingQuery:
    """Orders joined with their payments, to the topic `paid-orders`; those of a customer stay in order."""
    orders = bodies(spark, namesrv, "orders", ORDER).withColumnRenamed("storeTimestamp", "ordered")
    payments = bodies(spark, namesrv, "payments", PAYMENT).withColumnRenamed("storeTimestamp", "paid")
    # Stop waiting for a payment after an hour; otherwise Spark would keep every order forever.
    joined = orders.withWatermark("ordered", "1 hour").join(
        payments.withWatermark("paid", "1 hour"),
        f.expr("`order` = id AND paid BETWEEN ordered - INTERVAL 1 HOUR AND ordered + INTERVAL 1 HOUR"),
    )
    messages = joined.select(
        f.to_json(f.struct("id", "product", "amount", "total")).alias("body"),
        f.col("product").alias("tags"),
        f.col("id").alias("keys"),
        f.col("customer").alias("shardingKey"),
        f.col("id").alias("dedupKey"),
    )
    return (
        messages.writeStream.format("rocketmq")
        .queryName("paid orders")
        .options(namesrv=namesrv, topic="paid-orders", checkpointLocation=str(folder / "paid-orders"))
        .start()
    )


def revenue(spark: SparkSession, namesrv: str, folder: Path) -> StreamingQuery:
    """What each product brought, kept up to date as a table of Parquet files in `folder`/revenue."""
    paid = bodies(spark, namesrv, "paid-orders", PAID).dropDuplicates(["id"])
    totals = paid.groupBy("product").agg(
        f.count("*").alias("orders"), f.sum("amount").alias("pieces"), f.round(f.sum("total"), 2).alias("revenue")
    )

    def write(table: DataFrame, number: int) -> None:
        table.coalesce(1).write.mode("overwrite").parquet(str(folder / "revenue"))

    return (
        totals.writeStream.outputMode("complete")
        .queryName("revenue")
        .foreachBatch(write)
        .option("checkpointLocation", str(folder / "revenue-checkpoint"))
        .start()
    )


def main(namesrv: str, folder: Path) -> None:
    spark = mq.session(namesrv, app="shop")
    paid_orders(spark, namesrv, folder)
    revenue(spark, namesrv, folder)
    print(f"the table grows in {folder / 'revenue'}; Ctrl-C stops it", flush=True)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")
    main(address, Path(sys.argv[2] if len(sys.argv) > 2 else "shop-pipeline"))
