"""RocketMQ's `mqadmin`: its subcommands by their names, options and headings, so that scripts go on working.

Each module has the subcommands of one subject; `commands.py` is the table they are in, and `java_text.py` how Java
writes values. What they print follows mqadmin 5.5.0, the exit codes and the errors are ours.
"""
