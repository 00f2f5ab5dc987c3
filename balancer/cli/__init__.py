"""The command line: ``counterpoise``.

Its modules import the engine in the functions that use it, so that help and errors of
options do not wait for it.
"""

import sys


def main() -> None:
    """Run the command line; exits with 0 done, 1 goals unmet, 2 bad input, 130 interrupted."""
    try:
        from balancer.cli.app import app
        from balancer.cli.streams import prepare

        prepare()
        app(prog_name="counterpoise")
    except KeyboardInterrupt:
        print("counterpoise: interrupted", file=sys.stderr)
        sys.exit(130)


__all__ = ["main"]
