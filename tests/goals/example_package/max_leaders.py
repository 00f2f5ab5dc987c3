from typing import Any

from goals import Goal, State, at_most


class MaxLeaders(Goal):
    """No broker leads more than `limit` partitions."""

    limit: int = 1000

    def score(self, state: State) -> Any:
        return at_most(state.leader_count, self.limit)
