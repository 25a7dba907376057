"""Consumer groups: how far they are, who is in them, moving them, what may be wrong with them."""
