"""The provider adapter: one request as bytes in, one answer as exact blocks out."""

from services.runner.adapter.assemble import Answer, Piece
from services.runner.adapter.failures import ProviderFailure, UnknownDelta, endless
from services.runner.adapter.messages import MessagesAdapter

__all__ = ["Answer", "MessagesAdapter", "Piece", "ProviderFailure", "UnknownDelta", "endless"]
