"""Which object store a process uses: the one of its settings, or the one that it was given."""

import pytest

from foundation.bootstrap import Kernel
from foundation.objects import Endpoint, ObjectStore, endpoint_of
from foundation.settings import Settings
from foundation.storage import ConfigurationError

S3 = {
    "s3_endpoint": "https://s3.example.com",
    "s3_access_key": "key",
    "s3_secret_key": "canary-secret",
    "s3_bucket": "ours",
}


async def unreachable() -> Endpoint:
    raise AssertionError("nobody asks where the store is before it is used")


async def test_the_settings_name_a_store() -> None:
    settings = Settings.model_validate(S3)
    endpoint = endpoint_of(settings)
    assert (endpoint.url, endpoint.bucket) == ("https://s3.example.com", "ours")
    assert (endpoint.access_key, endpoint.secret_key) == ("key", "canary-secret")
    assert "canary" not in repr(endpoint) + repr(settings)
    assert Kernel(settings, None, "service").objects is not None


async def test_without_settings_it_is_the_embedded_one() -> None:
    embedded = ObjectStore(unreachable)
    assert (
        Kernel(Settings.model_validate({}), None, "service", objects=embedded).objects is embedded
    )


async def test_with_neither_the_variable_is_named() -> None:
    with pytest.raises(ConfigurationError, match="COUNTERFOIL_S3_ENDPOINT"):
        _ = Kernel(Settings.model_validate({}), None, "service").objects
