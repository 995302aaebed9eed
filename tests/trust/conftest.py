"""Fixtures for systems in processes."""

from tests.support.system_fixtures import model, pytest_runtest_makereport, zygote

__all__ = ["model", "pytest_runtest_makereport", "zygote"]
