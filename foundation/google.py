"""The untyped parts of Google's common protos, named once."""

from typing import Any

from google.api import annotations_pb2  # pyright: ignore[reportMissingTypeStubs]
from google.rpc import (  # pyright: ignore[reportMissingTypeStubs]
    error_details_pb2,
    status_pb2,
)

__all__ = ["error_details_pb2", "http_binding", "status_pb2"]

http_binding: Any = annotations_pb2.http
"""The method option that binds an RPC to REST."""
