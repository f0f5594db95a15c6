"""Holdings through the control socket: this node's own, and those that the other nodes have told the stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from holdfast.control.callers import Caller
from holdfast.control.http_connection import CALLER
from holdfast.control.messages import HeldQueryInfo, HeldStoreInfo, HoldingsInfo, HoldingsReply, NodeHealthInfo
from holdfast.control.operations import Operation, RouteGroup
from holdfast.control.paths import Paths
from holdfast.control.replies import number, reply
from holdfast.errors import OutsideMountError, WithheldError
from holdfast.holdings import Gathering, QueryState, Told


class HoldingsRoutes(RouteGroup):
    """The routes by path. ``zones`` are the names of the stores; ``may_search`` says whether a caller may look into one."""

    def __init__(
        self, gathering: Gathering, zones: Sequence[str], paths: Paths, may_search: Callable[[Caller, str], bool]
    ) -> None:
        self._may_search = may_search
        self._gathering = gathering
        self._zones = zones
        self._paths = paths
        query = {"path": "string", "all_nodes": "number"}
        self.operations = {"/v1/holdings": Operation(self._holdings, HoldingsReply, query)}
        self.for_pods = {"/v1/holdings": Operation(self._of_one_query, HoldingsReply, query)}

    async def _holdings(self, request: Request) -> Response:
        zones, root = self._wanted(request.query_params.get("path"))
        all_nodes = bool(number(request.query_params.get("all_nodes", "0"), "all_nodes"))
        gathered = await self._gathering.gather(zones, all_nodes=all_nodes)
        return reply(HoldingsReply(nodes=[self._info(told, root) for told in gathered.told], problems=gathered.problems))

    async def _of_one_query(self, request: Request) -> Response:
        """Reply as to all, but only about what the caller names below a store that it may look into."""
        zones, root = self._wanted(request.query_params.get("path"))
        if not root or not self._may_search(request.scope[CALLER], zones[0]):
            raise WithheldError("a pod is told of the holdings of a query that it names, in a store that it may search")
        return await self._holdings(request)

    def _wanted(self, path: str | None) -> tuple[list[str], str]:
        """Return the zones to ask and the directory in them. Raises ``OutsideMountError``."""
        relative = os.fsdecode(self._paths.relative(path)) if path is not None else ""
        if not relative:
            return list(self._zones), ""
        zone, _, root = relative.partition("/")
        if zone not in self._zones:
            named = " or ".join(f"{self._paths.mountpoint}/{each}" for each in sorted(self._zones))
            raise OutsideMountError(f"{path}: name a directory in {named}")
        return [zone], root

    def _info(self, told: Told, root: str) -> HoldingsInfo:
        report = told.report
        return HoldingsInfo(
            zone=told.zone,
            node=report.node,
            hosts=report.hosts,
            cores=report.cores,
            draining=report.is_draining,
            told=told.written,
            this_node=told.is_this_node,
            rack=report.rack,
            standbys=report.standbys,
            health=NodeHealthInfo(**structs.asdict(report.health)) if report.health else None,
            queries=[self._query(told.zone, query) for query in report.queries if _is_below(query.location, root)],
        )

    def _query(self, zone: str, query: QueryState) -> HeldQueryInfo:
        stores = [
            HeldStoreInfo(
                operator=state.operator,
                partition=state.partition,
                store=state.store,
                version=state.version,
                size_bytes=state.size_bytes,
                copy=state.is_copy,
                missing_bytes=state.missing_bytes,
            )
            for state in query.stores
        ]
        return HeldQueryInfo(path=self._paths.absolute(os.fsencode(f"{zone}/{query.location}".rstrip("/"))), stores=stores)


def _is_below(location: str, root: str) -> bool:
    return not root or location == root or location.startswith(root + "/")
