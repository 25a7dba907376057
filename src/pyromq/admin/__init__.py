"""Operations for people: functions on an AdminClient that return typed values for the CLI and the dashboard.

    asking      the admin client, one deadline for all questions, who did not answer
    lookout     a whole cluster at a glance, with as many requests as it has brokers
    listing     Listing: rows from several servers, and which servers are missing
    topic_kinds user topic, retry topic or RocketMQ's own, told by the name
    topics      names, routes, sizes; `traffic` of all topics, and `live` rates from sampled offsets
    groups/     lag, members, offset resets, signs of trouble
    messages/   choosing, reading, following and sending messages, dead letters, traces
    cluster/    broker figures, server settings, load, the doctor
    manifest/   topics and groups from a file, and to one

    from pyromq.admin.groups.lag import group_lag
    from pyromq.client.admin.fan_out import within

    async with AdminClient("localhost:9876") as admin, within(3.0):
        lag = await group_lag(admin, "billing")

An operation asks `pyromq.client.AdminClient`, which has a method for each request and asks many servers at once, under
one deadline. `Listing.missing` names the servers that did not answer, and their figures are None. Import each module by
itself: a command needs few of them and starts often.
"""
