"""Operations for people, as functions on an AdminClient that give typed values: what the CLI and the dashboard show.

    listing     Listing: rows of several servers, and who is missing
    topic_kinds what the name of a topic says: people's, a retry topic, RocketMQ's own
    topics      which there are, where, how big; `traffic` of all of them, and `live` rates out of looks at offsets
    groups/     lag, members, moving a group, signs of trouble
    messages/   which are meant, reading and following them, sending many, dead letters, traces
    cluster/    what brokers measure, settings of servers, what they carry, the doctor
    manifest/   topics and groups as a file says they should be, and such a file of a cluster

    from pyromq.admin.groups.lag import group_lag
    from pyromq.client.admin.fan_out import within

    async with AdminClient("localhost:9876") as admin, within(3.0):
        lag = await group_lag(admin, "billing")

An operation asks `pyromq.client.AdminClient`, which has a method for each request, and is where many servers are asked
at once and under one deadline. What some of them did not answer is in `Listing.missing`, and None where a figure would
stand. Each module is imported by itself, as a command needs few of them and starts often.
"""
