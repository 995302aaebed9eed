"""What a provider's `usage` says, and what becomes of what it does not say well."""

import pytest
from counterfoil.types.v1 import model_pb2
from counterfoil.types.v1.usage_pb2 import ModelUsage

from services.runner.answer import usage_of

FAST, STANDARD = model_pb2.MODEL_SPEED_FAST, model_pb2.MODEL_SPEED_STANDARD
NOTHING = ModelUsage()

ROWS = [
    (b'{"input_tokens":1,"output_tokens":2}', ModelUsage(input_tokens=1, output_tokens=2)),
    (b'{"cache_read_input_tokens":3}', ModelUsage(cache_read_input_tokens=3)),
    (b'{"cache_creation_input_tokens":4}', ModelUsage(cache_creation_input_tokens=4)),
    (b'{"cache_creation_input_tokens":4,"cache_creation":null}',
     ModelUsage(cache_creation_input_tokens=4)),
    (b'{"cache_creation_input_tokens":9,"cache_creation":'
     b'{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":5}}',
     ModelUsage(cache_creation_input_tokens=9, cache_creation_1h_input_tokens=5)),
    # The total is of the end, the parts may be of the beginning.
    (b'{"cache_creation_input_tokens":20,"cache_creation":'
     b'{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":5}}',
     ModelUsage(cache_creation_input_tokens=20, cache_creation_1h_input_tokens=5)),
    (b'{"cache_creation_input_tokens":3,"cache_creation":{"ephemeral_1h_input_tokens":5}}',
     ModelUsage(cache_creation_input_tokens=3, cache_creation_1h_input_tokens=3)),
    (b'{"cache_creation":{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":5}}',
     ModelUsage(cache_creation_input_tokens=9, cache_creation_1h_input_tokens=5)),
    (b'{"server_tool_use":{"web_search_requests":1,"web_fetch_requests":2,"more":[]}}',
     ModelUsage(web_search_requests=1, web_fetch_requests=2)),
    (b'{"server_tool_use":{"web_search_requests":null,"web_fetch_requests":-2}}', NOTHING),
    (b'{"server_tool_use":[1],"cache_creation":"4","speed":{"a":1}}', NOTHING),
    (b'{"speed":"fast"}', ModelUsage(speed=FAST)),
    (b'{"speed":"standard"}', ModelUsage(speed=STANDARD)),
    (b'{"speed":"","input_tokens":true}', NOTHING),
    (b'{"speed":"warp","input_tokens":1.5,"output_tokens":9223372036854775808}', NOTHING),
]  # fmt: skip


@pytest.mark.parametrize(("told", "counted"), ROWS)
def test_what_is_counted(told: bytes, counted: ModelUsage) -> None:
    assert usage_of(b'{"id":"m","usage":%b}' % told) == counted
