"""Consumer groups: lag, members, offset resets, signs of trouble."""
