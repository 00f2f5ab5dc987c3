"""Cruise Control's REST API under ``/kafkacruisecontrol``, for clients that know no other."""
