"""RocketMQ's `mqadmin`: its subcommands with their names, options and headings, so that scripts keep working.

Each module has the subcommands of one subject; `commands.py` holds their table, and `java_text.py` writes values as
Java does. The output follows mqadmin 5.5.0; exit codes and errors are ours.
"""
