"""gRPC in and out of the tools service."""

from typing import TYPE_CHECKING, Any

import structlog
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2_grpc
from counterfoil.tools.v1 import tools_pb2, tools_pb2_grpc
from counterfoil.types.v1.capability_pb2 import CapabilityProfile

from foundation.egress.allowing import parse_allowed
from services.tools.archive import read_archive
from services.tools.execution import Executor
from services.tools.platform import PlatformTools, load_module, platform_tools
from services.tools.profiles import choose
from services.tools.resolution import resolve

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel

_log = structlog.get_logger("counterfoil.tools")


async def start(kernel: "Kernel") -> None:
    """Choose the profile, load the platform tools, and serve. The service owns no table yet.

    What an operator lets out of the egress guard is said aloud, before anything can use it.
    """
    settings = kernel.settings
    if allowed := parse_allowed(settings.egress_allow):
        _log.warning("egress_allowed", allowed=str(allowed))
    profile = choose(settings.model_profile, settings.model_base_url, settings.model_window_tokens)
    if settings.tools_module:
        load_module(platform_tools, settings.tools_module)
    journal = journal_pb2_grpc.JournalServiceStub(kernel.channel("journal"))
    files = artifacts_pb2_grpc.ArtifactServiceStub(kernel.channel("files"))
    prunes = settings.context_pruning
    servicer = ToolServicer(platform_tools, profile, journal, files, prunes=prunes)
    kernel.register(tools_pb2_grpc.add_ToolServiceServicer_to_server, servicer)


class ToolServicer(tools_pb2_grpc.ToolServiceServicer):
    """Internal: resolution and execution."""

    def __init__(
        self,
        tools: PlatformTools,
        profile: CapabilityProfile,
        journal: journal_pb2_grpc.JournalServiceStub,
        files: artifacts_pb2_grpc.ArtifactServiceStub,
        *,
        prunes: bool = True,
    ) -> None:
        """`tools` are those that the deployment registered; `prunes` says whether new sessions may
        archive results. Raises ConfigurationError when one of them has our tool's name."""
        self._tools = tools
        self._profile = profile
        archive = read_archive(journal, files)
        self._archive = archive if prunes else None
        # Sessions that were made while pruning was enabled read their archives in any case.
        self._executor = Executor(tools.with_also(archive), journal)

    async def ResolveRuntime(
        self, request: tools_pb2.ResolveRuntimeRequest, context: Any
    ) -> tools_pb2.ResolveRuntimeResponse:
        runtime = resolve(request.agent, self._tools.all(), self._profile, self._archive)
        return tools_pb2.ResolveRuntimeResponse(runtime=runtime)

    async def Execute(
        self, request: tools_pb2.ExecuteRequest, context: Any
    ) -> tools_pb2.ExecuteResponse:
        await self._executor.execute(request)
        return tools_pb2.ExecuteResponse()

    async def stop(self) -> None:
        """Cut off what runs, at the end of the process."""
        await self._executor.stop()
