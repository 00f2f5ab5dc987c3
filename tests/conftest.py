"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says something of the machine, not of the code.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")
