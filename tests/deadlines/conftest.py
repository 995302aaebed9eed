"""The offline model for the systems of this folder."""

from tests.support.system_fixtures import model

__all__ = ["model"]
