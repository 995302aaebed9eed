"""The message classes of `codec_sample.proto`, compiled when the first test asks for one."""

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import buf.validate.validate_pb2  # noqa: F401 # the sample imports both contracts
import counterfoil.types.v1.annotations_pb2  # noqa: F401
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tools.proto import PROTO_DIR, protoc

PACKAGE = "counterfoil.tests.codec"


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "sample.binpb"
        outputs = [f"-I{PROTO_DIR}", f"--descriptor_set_out={target}"]
        protoc(Path(__file__).parent, outputs, ["codec_sample.proto"])
        files = FileDescriptorSet.FromString(target.read_bytes()).file
    pool = descriptor_pool.Default()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@cache
def sample(name: str) -> Any:
    """Return a message class of the sample; Any, because its fields exist at run time only."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))
