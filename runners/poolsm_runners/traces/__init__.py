"""Traces from event to answer, for those who have a collector (extra ``poolsm[otel]``).

On only when the standard variables name an endpoint; nothing of OpenTelemetry is imported
otherwise. One trace is one event that caused commands:

    Ticked                       the event, until it is durable with its commands
      CreateServer               a command, from the event to its answer; says when it was sent
        create_server            a request to the cloud
"""

from __future__ import annotations

from collections.abc import Mapping

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def are_wanted(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's own variables ask for traces."""
    off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    none = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    return any(environment.get(name, "").strip() for name in ENDPOINTS) and not (off or none)
