"""The service's log: one line an event on standard error, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from gunicorn.glogging import Logger

_TEXT = "%(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """``{"time", "level", "logger", "message"}`` a line, and ``trace`` for a fault."""

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(level: str, log_format: str) -> None:
    """Send everything to standard error (systemd's journal adds time and process)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


class GunicornLog(Logger):
    """gunicorn's messages in our log; its chatter about processes only when something is wrong."""

    def setup(self, cfg: object) -> None:
        """See gunicorn."""
        self.error_log.propagate = True
        self.error_log.setLevel(logging.WARNING)
        self.access_log.propagate = False

    def exception(self, msg: str, *args: object, **kwargs: object) -> None:
        """A client that stopped in the middle of a request, or of its answer, is no fault of ours."""
        if isinstance(sys.exc_info()[1], BlockingIOError):
            self.error_log.info("a client sent nothing more of its request, or took nothing more of its answer")
        else:
            super().exception(msg, *args, **kwargs)

    def access(self, resp: object, req: object, environ: object, request_time: object) -> None:
        """Requests are logged by the application, which knows their ids."""
