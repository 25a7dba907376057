"""What every test shares: how hypothesis runs."""

from __future__ import annotations

from hypothesis import settings

# A slow machine is not a failure, and a failure elsewhere is repeated here from the blob it prints.
settings.register_profile("pyromq", deadline=None, print_blob=True)
settings.load_profile("pyromq")
