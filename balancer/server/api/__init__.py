"""The API of this project, version 1: one module for each part, all under ``/api/v1``."""
