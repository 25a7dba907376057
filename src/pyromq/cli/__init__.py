"""The command `pyromq`: one file per noun, imported only when you call it.

    main.py          lists every noun with a one-line help (`NOUNS`) and imports the one you call
    verbs.py         makes verbs: `new_app`, `reading`, `changing`, `run_app`, and the options all verbs have
    parameters.py    arguments that many verbs take: `Topic`, `Group`, `Place`, ...
    session.py       what a verb works with: `session.admin`, `note`, `agreed`, `show`, `incomplete`
    execution.py     connects, keeps the deadline, prints, turns every error into one line and an exit code
    output.py        rows as table, json, ndjson, csv, yaml or name
    failures.py      the exit codes
    nouns/           the nouns, `pyromq topic` in topic.py
    classic/         the subcommands of `mqadmin`
    servers/         `pyromq up`, `broker` and `namesrv`, which run servers

How a noun is written:

    from pyromq.admin.listing import Listing
    from pyromq.admin.topics import topic_list            # operations are functions in pyromq.admin

    app = new_app("List, create and delete topics.")

    def main(arguments: list[str]) -> int:
        return run_app(app, "topic", arguments)

    @reading(app, "list")                                 # has --watch; `changing` has --yes and --dry-run
    async def list_topics(session: Session, cluster: ClusterName = None) -> Listing[TopicRow]:
        '''List all topics.'''                            # the help of the verb
        return await topic_list(session.admin, cluster)

- The first parameter is the session; typer turns the others into arguments and options (`Annotated[…]`).
- Options that several verbs share are the fields of a dataclass such as `Place`, `Part` or `Filter`; one parameter of
  that type brings them all.
- A verb returns a `Listing` of frozen dataclasses, a tuple of several, a mapping for one thing, or None; or it is an
  async generator whose rows are printed as they come. It prints nothing itself; remarks go through `session.note`.
- A verb that changes something first asks `session.agreed("delete topic orders", dangerous=True)`, and stops if the
  answer is False.
- Raise errors: a PyroMQError ends in one line and an exit code. If a parameter named `topic` or `group` names nothing
  that exists, the error suggests the nearest names. `CommandFailed` is for failures that only the verb knows of.
- `timeout=` covers the whole verb; None lets it run until stopped. `connects=False` means it needs no server.
- List the noun in `NOUNS`. Import heavy packages (rich, numpy, pyarrow) inside verbs: a test checks it.
"""
