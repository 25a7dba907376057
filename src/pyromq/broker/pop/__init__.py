"""POP: consumers take messages from any queue; what they do not acknowledge in time comes back."""
