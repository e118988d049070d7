"""Events as they happen (server-sent events): few streams at a time, each asleep while there is nothing to say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from time import monotonic

from vgpumgr.errors import UnavailableError
from vgpumgr.model.event import LOST, MAX_ID, Event, Stretch, Wanted
from vgpumgr.service import Service

KEEP_ALIVE_SECONDS = 15.0
"""A stream never says nothing for longer: so proxies keep it, and a client that is gone is noticed."""
RETRY_MILLISECONDS = 3000
"""After how long a browser connects again."""


class StreamsFullError(UnavailableError):
    """As many clients as may follow the events do so."""

    code = "streams-full"

    def __init__(self, seats: int) -> None:
        super().__init__(
            f"{seats} clients follow the events already", hint="end one of them, or ask again soon for the list"
        )


class Streams:
    """Each stream keeps a thread, so that only so many may be open; who opens one says when it is over."""

    def __init__(self, service: Service, seats: int) -> None:
        self._service = service
        self._count = seats
        self._seats = threading.BoundedSemaphore(seats)
        self._closed = False

    def open(self, wanted: Wanted, after: int | None) -> Iterator[str]:
        """What happens after the event ``after``, or from now on. Takes a seat: StreamsFullError."""
        events = self._service.events
        if after is None:
            after = events.follow(after=MAX_ID).newest
        if not self._seats.acquire(blocking=False):
            raise StreamsFullError(self._count)
        return self._frames(wanted, after)

    def leave(self) -> None:
        """Free the seat of a stream that is over."""
        self._seats.release()

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._service.events.bell.ring()

    def _frames(self, wanted: Wanted, after: int) -> Iterator[str]:
        events = self._service.events
        # With an id from the first: a connection that breaks before anything happened has a place to go on from.
        yield f"retry: {RETRY_MILLISECONDS}\nid: {after}\n\n"
        silent_until = monotonic() + KEEP_ALIVE_SECONDS
        while not self._closed:
            heard = events.bell.strokes
            stretch = events.follow(wanted, after=after)
            if not stretch.oldest - 1 <= after <= stretch.newest:
                yield _lost(after, stretch)
                after = stretch.oldest - 1  # as the client was told
                continue
            for event in stretch.events:
                yield _frame(event)
            after = stretch.read_to
            if stretch.events:
                silent_until = monotonic() + KEEP_ALIVE_SECONDS
            elif monotonic() >= silent_until:
                # With an id: who hears nothing for long because of a filter must not seem to have missed all of it.
                yield f": nothing new\nid: {after}\n\n"
                silent_until = monotonic() + KEEP_ALIVE_SECONDS
            if after >= stretch.newest and not self._closed:
                events.bell.wait(heard, max(0.0, silent_until - monotonic()))


def _frame(event: Event) -> str:
    return f"id: {event.id}\nevent: {event.what.type}\ndata: {_text(event.to_json())}\n\n"


def _lost(after: int, stretch: Stretch) -> str:
    """Not all is kept for ever, and a database can be put back: the client should look at everything anew."""
    data = {"after": after, "oldest": stretch.oldest, "newest": stretch.newest}
    return f"id: {stretch.oldest - 1}\nevent: {LOST}\ndata: {_text(data)}\n\n"


def _text(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)
