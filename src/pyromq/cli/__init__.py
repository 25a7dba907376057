"""The command `pyromq`: one file per noun, each imported only when it is asked for.

    main.py          knows every noun by name and a sentence (`NOUNS`), imports the one that is meant
    verbs.py         makes verbs: `new_app`, `reading`, `changing`, `run_app`, and the options that all verbs have
    parameters.py    arguments that many verbs take: `Topic`, `Group`, `Place`, ...
    session.py       what a verb is given: `session.admin`, `note`, `agreed`, `show`, `incomplete`
    execution.py     connects, keeps the deadline, prints, ends every error in one line and an exit code
    output.py        rows as table, json, ndjson, csv, yaml or name
    failures.py      the exit codes
    nouns/           the nouns, `pyromq topic` in topic.py
    classic/         the subcommands of `mqadmin`
    servers/         `pyromq up`, `broker` and `namesrv`, which run servers

How a noun is written:

    from pyromq.admin.listing import Listing
    from pyromq.admin.topics import topic_list            # operations are functions in pyromq.admin

    app = new_app("What topics there are, and making them.")

    def main(arguments: list[str]) -> int:
        return run_app(app, "topic", arguments)

    @reading(app, "list")                                 # has --watch; `changing` has --yes and --dry-run
    async def list_topics(session: Session, cluster: ClusterName = None) -> Listing[TopicRow]:
        '''All topics.'''                                 # the help of the verb
        return await topic_list(session.admin, cluster)

- The first parameter is the session, the others are what typer makes arguments and options of (`Annotated[…]`).
- Options that several verbs share are the fields of a dataclass, as `Place`, `Part` or `Filter`: a parameter of that
  type stands for all of them.
- A verb returns a `Listing` of frozen dataclasses, a mapping for one thing, or None; or it is an async generator of
  rows, which are printed as they come. It prints nothing itself; remarks go through `session.note`.
- A verb that changes something asks `session.agreed("delete topic orders", dangerous=True)` first, and does nothing if
  that is False.
- Errors are raised: a PyroMQError ends in one line and an exit code. A parameter named `topic` or `group` whose value
  is not there is answered with the nearest names. `CommandFailed` is for what only the verb knows.
- `timeout=` is for the whole verb, None where it goes on until it is stopped; `connects=False` says that no server is
  needed.
- A noun goes into `NOUNS`. What is heavy (rich, numpy, pyarrow) is imported inside of verbs: a test counts.
"""
