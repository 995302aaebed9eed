"""Log lines of every process: one JSON object a line when read by programs, columns for people.

Lines say which request, trace, session and turn they are about. They never hold content.
"""

import logging
import sys
from typing import Any

import structlog
from opentelemetry import trace

from foundation.rpc import context

_OURS = ("cli", "foundation", "gateway", "services")


def configure(level: str = "info", form: str = "auto") -> None:
    """Sends structlog and the standard library's loggers to standard error.

    `level` is the least severe of our own lines. Libraries stay at warning: below that, some write
    what they send. `form` is json, console, or auto: columns on a terminal.
    """
    columns = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if columns
        else structlog.processors.JSONRenderer()
    )
    common: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_call,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if isinstance(renderer, structlog.processors.JSONRenderer):
        common.append(structlog.processors.format_exc_info)
    least = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*common, renderer],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(least),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_ours_or_severe)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for name in _OURS:
        logging.getLogger(name).setLevel(least)


def add_call(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Adds the ids of the call that writes the line, where the line has none of its own."""
    known: dict[str, Any] = {**context.named()}
    if context.current().request_id:
        known["request_id"] = context.current().request_id
    where = trace.get_current_span().get_span_context()
    if where.is_valid:
        known["trace_id"] = trace.format_trace_id(where.trace_id)
    for name, value in known.items():
        event.setdefault(name, value)
    return event


def _ours_or_severe(record: logging.LogRecord) -> bool:
    ours = record.name.partition(".")[0] in _OURS
    return ours or record.levelno >= logging.WARNING
