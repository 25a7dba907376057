"""The remoting protocol: frames, commands, headers, bodies, the message record. Values and bytes, no IO, no clock."""
