"""A notifier: every event becomes a line of a file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel


class FileNotifier(BaseModel):
    """Appends every event to a file, as one line of JSON.

    Parameters
    ----------
    path
        Path of the file.
    """

    summary: ClassVar[str] = "Append every event to a file, as one line of JSON."

    path: Path

    def send(self, event: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, default=str) + "\n")
