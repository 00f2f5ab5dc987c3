"""Serves a running controller to people and programs: REST, live events and a page."""

from balancer.server.errors import ServerError
from balancer.server.server import Server
from balancer.server.service import Service
from balancer.server.settings import ServerSettings, load_server_settings

__all__ = ["Server", "ServerError", "ServerSettings", "Service", "load_server_settings"]
