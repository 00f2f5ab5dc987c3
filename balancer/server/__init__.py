"""Serves a running controller to people and programs: REST, live events and a page."""

from typing import TYPE_CHECKING

from metrics_reporter.lazy import lazy

if TYPE_CHECKING:
    from balancer.server.errors import ServerError
    from balancer.server.server import Server
    from balancer.server.service import Service
    from balancer.server.settings import ServerSettings, load_server_settings
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "balancer.server.errors": ("ServerError",),
            "balancer.server.server": ("Server",),
            "balancer.server.service": ("Service",),
            "balancer.server.settings": ("ServerSettings", "load_server_settings"),
        },
    )

__all__ = ["Server", "ServerError", "ServerSettings", "Service", "load_server_settings"]
