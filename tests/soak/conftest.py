"""The soak's test needs a system's parts, and a PostgreSQL that may die."""

from tests.support.system_fixtures import model, zygote

__all__ = ["model", "zygote"]
