"""What every request finds in its application: the use-cases, and the seats of requests that stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from flask import current_app

from vgpumgr.errors import UnavailableError
from vgpumgr.service import Service
from vgpumgr_api.streams import Streams
from vgpumgr_api.waiting import WaitingRoom


@dataclass(frozen=True, slots=True)
class Context:
    """One host's."""

    service: Service
    waiting_room: WaitingRoom
    streams: Streams

    def close(self) -> None:
        """The service stops: answer everybody who waits, and end every stream."""
        self.waiting_room.close()
        self.streams.close()


def context() -> Context:
    """The context of the request that is being answered."""
    return cast(Context, current_app.extensions["vgpumgr"])


def service() -> Service:
    """The use-cases behind this application."""
    return context().service


def ready_service() -> Service:
    """The use-cases, once the host has been reconciled: before that, changes would be made blindly."""
    found = service()
    ready, waiting_for = found.ready()
    if not ready:
        raise UnavailableError(
            f"the service is starting: it waits for {', '.join(waiting_for)}",
            hint="ask again soon",
            code="starting",
        )
    return found
