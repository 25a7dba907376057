"""Connected clients: who they are, what they ask of the broker, and what it asks of them."""
