"""/v1/iommu-groups: the kernel's units of isolation."""

from __future__ import annotations

from flask import Response

from vgpumgr_api.answers import one, page_of
from vgpumgr_api.context import service
from vgpumgr_api.host_responses import GroupModel, GroupPage
from vgpumgr_api.outcomes import problems
from vgpumgr_api.resource import Resource
from vgpumgr_api.schemas import GroupListQuery, GroupPath, NoQuery

api = Resource("iommu-groups", __name__, "Units of isolation")


@api.get("/v1/iommu-groups", summary="IOMMU groups", responses={200: GroupPage, **problems()})
def list_groups(query: GroupListQuery) -> Response:
    """All groups by number."""
    groups = service().inventory().groups
    found = [group for group in groups if query.viable is None or group.viable == query.viable]
    return page_of(found, query.limit, query.cursor)


@api.get("/v1/iommu-groups/<int:group_id>", summary="One group", responses={200: GroupModel, **problems(404)})
def show_group(path: GroupPath, query: NoQuery) -> Response:
    """Members and blockers."""
    return one(service().group(path.group_id))
