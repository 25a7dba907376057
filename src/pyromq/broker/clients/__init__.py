"""Who is connected, what clients ask of a broker, and what it asks of them."""
