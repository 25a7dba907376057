"""POP: messages taken from any queue, invisible to others for a while, and given back when nobody acknowledges them."""
