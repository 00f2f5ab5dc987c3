"""A controller whose execution lost the vote recovers before it does anything else."""

from __future__ import annotations

from controller_cases import Ended, Progressed, Stage, skewed


class Loses:
    """An executor that loses the vote, as often as told."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.calls: list[str] = []

    def execute(self, plan: object, *, progress: Progressed = None) -> Ended:
        self.calls.append("execute")
        return self._ended()

    def recover(self, *, progress: Progressed = None) -> Ended:
        self.calls.append("recover")
        return self._ended() if "execute" in self.calls else Ended()

    def left(self) -> tuple[str, ...]:
        return ()

    def stop(self) -> None: ...

    def _ended(self) -> Ended:
        self.times -= 1
        return Ended(state="vote lost" if self.times >= 0 else "done")


def test_what_was_left_is_recovered_until_that_succeeds() -> None:
    executor = Loses(times=3)
    stage = Stage(skewed(), {"goal_violations": {"rounds": 1}}, executor=executor)
    stage.rounds(12)
    # Lost while it executed, and twice while it recovered; the fourth time it does not.
    assert executor.calls[:5] == ["recover", "execute", "recover", "recover", "recover"]
    assert "recover" not in executor.calls[5:]
