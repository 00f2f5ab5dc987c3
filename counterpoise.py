"""Starts the command line; an interrupt ends it with one sentence even while it is being loaded."""

from __future__ import annotations

import sys


def main() -> None:
    """Load and run the command line; exits with 130 if it is interrupted."""
    try:
        from balancer.cli import main as run

        run()
    except KeyboardInterrupt:
        print("counterpoise: interrupted", file=sys.stderr)
        sys.exit(130)
