"""Long tests and new random examples, for as long as there is time.

    python tests/support/soak.py [--minutes 20] [--seed SEED]

The first round also runs the tests marked as soak; each draws new examples for properties and new
random clusters, from a seed of its own. It ends with each failure and the seed that repeats it,
and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from threading import Timer

# Seconds that a command has to say what failed, once it is interrupted.
_GRACE = 60.0
_FAILED = re.compile(r"(?m)^(?:FAILED|ERROR) (.+?)(?: - .*)?$")


def commands(seed: int, *, first: bool) -> Iterator[list[str]]:
    """What a round runs, as words after ``python``."""
    marked = "(soak or hypothesis) and not peer" if first else "hypothesis and not peer"
    options = ["--hypothesis-profile", "roaming", "--hypothesis-seed", str(seed)]
    yield ["-m", "pytest", "--numprocesses", "3", "-rfE", *options, "-m", marked]
    yield ["-m", "benchmarks", "run", "random-clusters", "--seed", str(seed)]


def run(words: Sequence[str], seconds: float) -> Iterator[str]:
    """Run a command of Python, show what it prints, and yield what failed in it."""
    deadline = time.monotonic() + seconds
    said = ""
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        timers = (
            Timer(seconds, process.send_signal, [signal.SIGINT]),
            Timer(seconds + _GRACE, process.kill),
        )
        try:
            for timer in timers:
                timer.start()
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                said += line
        finally:
            for timer in timers:
                timer.cancel()
    failed = _FAILED.findall(said)
    yield from failed
    if process.returncode and not failed and time.monotonic() < deadline:
        yield f"exit code {process.returncode}"


def main() -> None:
    """Run rounds until the time is over."""
    parser = argparse.ArgumentParser(description="Long tests and new random examples.")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (default: 20)")
    parser.add_argument("--seed", type=int, help="of the first round (default: a random one)")
    given = parser.parse_args()
    first = random.SystemRandom().randrange(2**31) if given.seed is None else given.seed
    deadline = time.monotonic() + 60 * given.minutes
    failures: list[str] = []
    for seed in count(first):
        for words in commands(seed, first=seed == first):
            left = deadline - time.monotonic()
            if left > 0:
                print(f"soak: seed {seed}, {left / 60:.0f} min left: {' '.join(words)}", flush=True)
                again = f"make soak SEED={seed}"
                failures += [f"{failed}: {again}" for failed in run(words, left)]
        if time.monotonic() >= deadline:
            break
    print(f"soak: seeds {first} to {seed}, {len(failures)} failed", *failures, sep="\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
