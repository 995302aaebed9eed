"""Systems for the tests of this folder."""

from tests.support.system_fixtures import (
    model,
    pytest_runtest_makereport,
    running_system,
    system,
    zygote,
)

__all__ = ["model", "pytest_runtest_makereport", "running_system", "system", "zygote"]
