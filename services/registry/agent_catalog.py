"""What clients do with agents: create, read, list, change, archive."""

from counterfoil.registry.v1 import agent_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure, wrong_state
from foundation.idempotency import new_id
from foundation.storage import Database, SealRing
from services.registry import agents, pages, store
from services.registry.resources import agent_identity, known, missing, open_agent, open_definition

_LIST = "registry.agents.cursor"
_VERSIONS = "registry.agent_versions.cursor"
_VERSION_MAX = 2**63 - 1


class AgentCatalog:
    """Every method works inside one workspace; what is not there is NOT_FOUND."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def create(self, workspace: str, request: pb.CreateAgentRequest) -> pb.Agent:
        """Store version 1."""
        agent = agents.new_agent(request, new_id("agent"))
        row = await store.create_agent(self._db, workspace, agent.id, self._seal(workspace, agent))
        agent.created_at.FromDatetime(row["created_at"])
        agent.updated_at.FromDatetime(row["created_at"])
        return agent

    async def get(self, workspace: str, request: pb.GetAgentRequest) -> pb.Agent:
        """The newest version, or the one that the request names."""
        id = known(request.agent_id, "agent")
        version = request.version if request.HasField("version") else None
        row = await store.get_agent(self._db, workspace, id, version)
        if row is None:
            raise missing("agent", id)
        if row["version"] is None:
            reason = reasons.ERROR_REASON_NOT_FOUND
            raise Failure(reason, f"agent {id} has no version {version}", path="version")
        return open_agent(self._ring, workspace, id, row)

    async def list(self, workspace: str, request: pb.ListAgentsRequest) -> pb.ListAgentsResponse:
        """A page of the workspace's agents."""
        gte, lte = pages.times(request, ("created_at_gte", "created_at_lte"))
        since, before = pages.since(gte), pages.before(lte)
        after = pages.read_place(self._ring, request.page, _LIST, workspace)
        pages.check_range(after, since, before)
        limit = pages.limit_of(request)
        rows = await store.list_agents(
            self._db,
            workspace,
            after,
            include_archived=request.include_archived,
            since=since,
            before=before,
            limit=limit + 1,
        )
        page, more = pages.page_of(rows, limit)
        response = pb.ListAgentsResponse(
            data=[open_agent(self._ring, workspace, row["id"], row) for row in page]
        )
        if more:
            response.next_page = pages.write_place(self._ring, page[-1], _LIST, workspace)
        return response

    async def versions(
        self, workspace: str, request: pb.ListAgentVersionsRequest
    ) -> pb.ListAgentVersionsResponse:
        """A page of an agent's versions."""
        id = known(request.agent_id, "agent")
        list_ = _VERSIONS, workspace, id
        below = pages.read_number(self._ring, request.page, _VERSION_MAX, *list_)
        limit = pages.limit_of(request)
        rows = await store.list_versions(self._db, workspace, id, below, limit + 1)
        # Version 1 always exists, and a cursor is issued only above it: no row, no agent.
        if not rows:
            raise missing("agent", id)
        page, more = pages.page_of(rows, limit)
        response = pb.ListAgentVersionsResponse(
            data=[open_agent(self._ring, workspace, id, row) for row in page]
        )
        if more:
            response.next_page = pages.write_number(self._ring, page[-1]["version"], *list_)
        return response

    async def update(self, workspace: str, request: pb.UpdateAgentRequest) -> pb.Agent:
        """Store the next version, unless nothing changes."""
        id = known(request.agent_id, "agent")
        async with self._db.commit("registry.update_agent") as c:
            row = await store.lock_agent(c, workspace, id)
            if row is None:
                raise missing("agent", id)
            if row["archived_at"] is not None:
                raise wrong_state(f"agent {id} is archived and cannot change; create another one")
            current = open_definition(self._ring, workspace, id, row)
            agents.check_version(current, request)
            agent = agents.updated(current, request)
            if agent is not None:
                sealed = self._seal(workspace, agent)
                row = await store.add_version(c, workspace, id, agent.version, sealed)
        return open_agent(self._ring, workspace, id, row)

    async def archive(self, workspace: str, request: pb.ArchiveAgentRequest) -> pb.Agent:
        """Forbid new sessions."""
        id = known(request.agent_id, "agent")
        row = await store.archive_agent(self._db, workspace, id)
        if row is None:
            raise missing("agent", id)
        return open_agent(self._ring, workspace, id, row)

    def _seal(self, workspace: str, agent: pb.Agent) -> bytes:
        identity = agent_identity(workspace, agent.id, agent.version)
        return self._ring.seal(agent.SerializeToString(deterministic=True), *identity)
