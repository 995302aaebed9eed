"""Starts a runner in a process: stubs of the authorities, the provider adapter, the driver."""

from counterfoil.context.v1 import context_pb2_grpc
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2_grpc
from counterfoil.ledger.v1 import turn_pb2_grpc
from counterfoil.tools.v1 import tools_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2_grpc

from foundation import measures
from foundation.bootstrap import Kernel
from services.runner.adapter import MessagesAdapter
from services.runner.authorities import Authorities
from services.runner.collecting import collect_for_ever
from services.runner.driver import Driver
from services.runner.retrying import RetryPolicy

_COLLECT_SECONDS = 3600.0


async def start(kernel: Kernel) -> None:
    """Attaches a runner to the ledger for as long as the kernel runs."""
    settings = kernel.settings
    adapter = MessagesAdapter(
        base_url=settings.model_base_url,
        api_key=settings.model_api_key.get_secret_value(),
        auth=settings.model_auth,
    )
    policy = RetryPolicy(
        retries_max=settings.model_retries_max,
        wait_ms=settings.model_retry_ms,
        wait_ms_max=settings.model_retry_ms_max,
    )
    authorities = connect(kernel)
    driver = Driver(authorities, adapter, capacity=settings.runner_capacity, policy=policy)
    kernel.watch(measures.RUNNER_TURNS.watch(lambda: driver.held))
    kernel.spawn(_run(driver, adapter), "runner")
    collecting = collect_for_ever(authorities.artifacts, authorities.journal, _COLLECT_SECONDS)
    kernel.spawn(collecting, "collector")


async def _run(driver: Driver, adapter: MessagesAdapter) -> None:
    try:
        await driver.run()
    finally:
        await adapter.close()


def connect(kernel: Kernel) -> Authorities:
    """Stubs of everything that a turn needs, wherever it is served."""
    return Authorities(
        turns=turn_pb2_grpc.TurnServiceStub(kernel.channel("ledger")),
        transcript=transcript_pb2_grpc.TranscriptServiceStub(kernel.channel("transcript")),
        journal=journal_pb2_grpc.JournalServiceStub(kernel.channel("journal")),
        context=context_pb2_grpc.ContextServiceStub(kernel.channel("context")),
        artifacts=artifacts_pb2_grpc.ArtifactServiceStub(kernel.channel("files")),
        tools=tools_pb2_grpc.ToolServiceStub(kernel.channel("tools")),
    )
