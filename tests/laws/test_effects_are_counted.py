"""What counts the executions of tests' tools counts those that were told, whoever dies."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.platform_tool import counting

_TOLD = json.dumps({"tool": "note", "operation": "op_1", "input": {}}).encode() + b"\n"


@pytest.mark.parametrize(("sent", "counted"), [(_TOLD, {"op_1": 1}), (_TOLD[:9], {}), (b"", {})])
async def test_a_process_that_died_before_it_told_has_executed_nothing(
    tmp_path: Path, sent: bytes, counted: dict[str, int]
) -> None:
    async with counting(tmp_path / "effects") as effects:
        reader, writer = await asyncio.open_unix_connection(tmp_path / "effects")
        writer.write(sent)
        writer.write_eof()
        assert bool(await reader.read()) is bool(counted)
        writer.close()
        assert effects.by_operation() == counted
