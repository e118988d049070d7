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
    """Profiles of all cards (or of one), each with how many more fit in all and per GPU."""
    offers = [item for item in service().profiles(query.gpu) if query.name in (None, item.profile.name)]
    return page_of(offers, query.limit, query.cursor)
