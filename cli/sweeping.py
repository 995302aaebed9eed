"""`counterfoil files sweep`: the collector, on an operator's word."""

from dataclasses import asdict

from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2_grpc

from cli import output
from cli.operator import channel, service_key
from cli.output import Form
from cli.progress import counting
from foundation.settings import Settings
from services.runner.collecting import Collector

_COLUMNS = {
    "sessions": "SESSIONS",
    "condemned": "CONDEMNED",
    "revived": "REVIVED",
    "deleted": "DELETED",
    "objects": "OBJECTS REMOVED",
    "failed": "FAILED",
}


async def sweep(settings: Settings, grace_ms: int, form: Form) -> bool:
    """One pass over everything; True when nothing was left for another time."""
    key = service_key(settings)
    async with channel(settings, "files", key) as files, channel(settings, "journal", key) as other:
        collector = Collector(
            artifacts_pb2_grpc.ArtifactServiceStub(files.as_channel()),
            journal_pb2_grpc.JournalServiceStub(other.as_channel()),
            grace_ms,
        )
        with counting("Looking at sessions with files") as count:
            async for owner in collector.sessions():
                await collector.look_at(owner)
                count(1)
        with counting("Looking at objects") as count:
            async for looked_at in collector.inventory():
                count(looked_at)
    output.rows(form, [asdict(collector.tally)], _COLUMNS, "")
    return collector.tally.failed == 0
