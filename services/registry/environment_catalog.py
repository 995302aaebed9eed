"""What clients do with environments: create, read, list, change, archive, delete."""

from counterfoil.registry.v1 import environment_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from foundation.idempotency import new_id
from foundation.storage import Database, SealRing
from services.registry import environments, pages, store
from services.registry.resources import (
    environment_identity,
    known,
    missing,
    open_configuration,
    open_environment,
)

_LIST = "registry.environments.cursor"


class EnvironmentCatalog:
    """Every method works inside one workspace; what is not there is ENVIRONMENT_NOT_FOUND."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def create(self, workspace: str, request: pb.CreateEnvironmentRequest) -> pb.Environment:
        """Store an environment under a name that is free."""
        environment = environments.new_environment(request, new_id("environment"))
        id, name = environment.id, environment.name
        sealed = self._seal(workspace, environment)
        row = await store.create_environment(self._db, workspace, id, name.encode(), sealed)
        if row is None:
            raise _taken(name)
        return open_environment(self._ring, workspace, id, row)

    async def get(self, workspace: str, request: pb.GetEnvironmentRequest) -> pb.Environment:
        """An environment, archived or not."""
        id = _known(request.environment_id)
        row = await store.get_environment(self._db, workspace, id)
        if row is None:
            raise _missing(id)
        return open_environment(self._ring, workspace, id, row)

    async def list(
        self, workspace: str, request: pb.ListEnvironmentsRequest
    ) -> pb.ListEnvironmentsResponse:
        """A page of the workspace's environments."""
        after = pages.read_place(self._ring, request.page, _LIST, workspace)
        limit = pages.limit_of(request)
        rows = await store.list_environments(
            self._db,
            workspace,
            after,
            include_archived=request.include_archived,
            limit=limit + 1,
        )
        page, more = pages.page_of(rows, limit)
        response = pb.ListEnvironmentsResponse(
            data=[open_environment(self._ring, workspace, row["id"], row) for row in page]
        )
        if more:
            response.next_page = pages.write_place(self._ring, page[-1], _LIST, workspace)
        return response

    async def update(self, workspace: str, request: pb.UpdateEnvironmentRequest) -> pb.Environment:
        """Change an environment that is not archived."""
        id = _known(request.environment_id)
        async with self._db.commit("registry.update_environment") as c:
            row = await store.lock_environment(c, workspace, id)
            if row is None:
                raise _missing(id)
            if row["archived_at"] is not None:
                raise Failure(
                    reasons.ERROR_REASON_ENVIRONMENT_ARCHIVED,
                    f"environment {id} is archived and cannot change; create another one",
                )
            current = open_configuration(self._ring, workspace, id, row["definition_sealed"])
            changed = environments.updated(current, request)
            if changed is not None:
                name, sealed = changed.name.encode(), self._seal(workspace, changed)
                row = await store.put_environment(c, workspace, id, name, sealed)
                if row is None:
                    raise _taken(changed.name)
        return open_environment(self._ring, workspace, id, row)

    async def archive(
        self, workspace: str, request: pb.ArchiveEnvironmentRequest
    ) -> pb.Environment:
        """Forbid new sessions, and free the name."""
        id = _known(request.environment_id)
        row = await store.archive_environment(self._db, workspace, id)
        if row is None:
            raise _missing(id)
        return open_environment(self._ring, workspace, id, row)

    async def delete(self, workspace: str, request: pb.DeleteEnvironmentRequest) -> str:
        """Remove an environment; returns its id."""
        id = _known(request.environment_id)
        if not await store.delete_environment(self._db, workspace, id):
            raise _missing(id)
        return id

    def _seal(self, workspace: str, environment: pb.Environment) -> bytes:
        identity = environment_identity(workspace, environment.id)
        return self._ring.seal(environment.SerializeToString(deterministic=True), *identity)


def _known(id: str) -> str:
    return known(id, "environment", reason=reasons.ERROR_REASON_ENVIRONMENT_NOT_FOUND)


def _missing(id: str) -> Failure:
    return missing("environment", id, reason=reasons.ERROR_REASON_ENVIRONMENT_NOT_FOUND)


def _taken(name: str) -> Failure:
    return Failure(
        reasons.ERROR_REASON_CONFLICT,
        f"an environment named {name[:80]!r} exists already",
        path="name",
    )
