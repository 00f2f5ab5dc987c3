"""The files with which a server of this project proves who it is, and knows its clients."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Tls(BaseModel):
    """Certificates of a server, as PEM files.

    Parameters
    ----------
    certificate, key
        The server's own; the certificate with its chain.
    client_ca
        Authority of client certificates; with it, every client needs one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: Path
    key: Path
    client_ca: Path | None = None
