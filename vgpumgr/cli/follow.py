"""Follows the service's events: server-sent events over its socket, taken up again where they broke off."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

from vgpumgr.cli.client import UnixConnection, target_of
from vgpumgr.cli.problems import raise_problem
from vgpumgr.errors import UnavailableError
from vgpumgr.model.event import LOST

JsonObject = dict[str, Any]
SILENCE_SECONDS = 45.0
"""The service says at least every 15 seconds that it is there: after three times that it is not."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


class Frame(NamedTuple):
    """What one block of a stream says; a part that it does not say is empty."""

    id: str = ""
    event: str = ""
    data: str = ""


def follow(
    socket: Path, filters: Mapping[str, str], after: int | None, note: Callable[[str], None]
) -> Iterator[JsonObject]:
    """Events after one, or from now on, without end; ``note`` is told of interruptions and of what was missed.

    A service that goes away is waited for, once it was there. Raises UnavailableError when it is not there at
    first, and whatever it refuses the request with.
    """
    last, pause, was_there = "" if after is None else str(after), FIRST_PAUSE, False
    while True:
        why = "the service ended the stream"
        try:
            for frame in _frames(socket, filters, last):
                was_there, pause = True, FIRST_PAUSE
                last = frame.id or last
                if frame.event == LOST:
                    note(f"events up to {frame.id} are not kept any more, and were missed")
                elif frame.data:
                    yield json.loads(frame.data)
        except UnavailableError as error:
            if not was_there:
                raise
            why = error.message
        note(f"{why}; connecting again in {pause:.0f} s")
        sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _frames(socket: Path, filters: Mapping[str, str], last: str) -> Iterator[Frame]:
    """One connection's. Raises UnavailableError when there is none, or when it breaks off."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
    with closing(UnixConnection(socket, SILENCE_SECONDS)) as connection:
        try:
            connection.request("GET", target_of("/v1/events", filters), headers=headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise_problem(response.status, response.read())
            yield from read_frames(response)
        except (OSError, HTTPException) as error:
            raise UnavailableError(
                f"the service on {socket} broke off: {str(error) or type(error).__name__}",
                hint="journalctl -u vgpumgr says why",
                code="service-unavailable",
            ) from error


def read_frames(response: HTTPResponse) -> Iterator[Frame]:
    """The blocks of a stream, up to its end; one that is cut off is none."""
    frame = Frame()
    while line := response.readline():
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if name in Frame._fields:
            frame = frame._replace(**{name: value.removeprefix(" ")})
        elif not name and not value:
            yield frame
            frame = Frame()
