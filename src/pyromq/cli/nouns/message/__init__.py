"""`pyromq message`: finding, reading, following, sending, exporting and importing messages."""
