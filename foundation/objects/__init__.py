"""Bytes that are too large for a database: any S3 object store, or the embedded SeaweedFS."""

from foundation.objects.seaweed import EmbeddedObjects, ObjectsFailed, program
from foundation.objects.store import Endpoint, Missing, ObjectStore, StoreUnavailable, endpoint_of

__all__ = [
    "EmbeddedObjects",
    "Endpoint",
    "Missing",
    "ObjectStore",
    "ObjectsFailed",
    "StoreUnavailable",
    "endpoint_of",
    "program",
]
