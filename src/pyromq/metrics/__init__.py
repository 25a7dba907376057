"""Metrics and health of a process: what is measured, and the pages that show it."""

from .config import ExporterType, MetricsConfig
from .health import Check, Startup
from .monitor import Monitor

__all__ = ["Check", "ExporterType", "MetricsConfig", "Monitor", "Startup"]
