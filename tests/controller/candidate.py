"""A child process of the tests that takes part in an election and records when it acts."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from balancer.controller import Election


def main(bootstrap: str, session: str, path: str) -> None:
    """Write the time and whether this one acts, a hundred times a second, until killed."""
    with Election(bootstrap, session=float(session)) as election, Path(path).open("w") as file:
        while True:
            # The time first: acting is true at that time or a little later, never earlier.
            now = time.monotonic()
            file.write(f"{now} {int(election.acting)}\n")
            file.flush()
            time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
