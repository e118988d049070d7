"""/v1/profiles: how many more of each vGPU profile fit on this host."""

from __future__ import annotations

from flask import Response

from vgpumgr_api.answers import page_of
from vgpumgr_api.context import service
from vgpumgr_api.host_responses import OfferPage
from vgpumgr_api.outcomes import problems
from vgpumgr_api.resource import Resource
from vgpumgr_api.schemas import ProfileListQuery

api = Resource("profiles", __name__, "vGPU profiles and capacity")


@api.get("/v1/profiles", summary="How many more of each profile fit", responses={200: OfferPage, **problems(404)})
def list_profiles(query: ProfileListQuery) -> Response:
    """Profiles of all cards (or of one), each with how many more fit in all and per GPU.

    ``reasons`` say why cards that can be sliced list none now, and ``hint`` what to do about that.
    """
    offers, reasons = service().offers(query.gpu)
    found = [item for item in offers if query.name in (None, item.profile.name)]
    hint = " ".join(dict.fromkeys(_HINTS[reason.code] for reason in reasons if reason.code in _HINTS))
    return page_of(found, query.limit, query.cursor, reasons=[item.to_json() for item in reasons], hint=hint)


_HINTS = {
    "vfs-off": "POST /v1/gpus/{address}/slice enables a card's virtual functions, which list its profiles then.",
    "host-driver-absent": "POST /v1/gpus/{address}/release gives a card back to its host driver, which lists them.",
}
"""What to do about a card that lists no profile."""
