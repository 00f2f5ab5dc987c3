"""One browser for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import Tab, tab


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found
