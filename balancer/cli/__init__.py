"""The command line: ``counterpoise``."""

from balancer.cli.app import app


def main() -> None:
    """Run the command line; exits with 0 done, 1 goals unmet, 2 bad input."""
    app(prog_name="counterpoise")


__all__ = ["app", "main"]
