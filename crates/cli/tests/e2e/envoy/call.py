"""Sends calls to a gRPC listener, one after the other, and prints the responses.

Calls and responses are JSON. The optional third argument is an object with metadata for every call."""

import json
import sys

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"

# For a Unix socket, this library would send the path as authority, which is not a valid host.
options = [("grpc.default_authority", "tidegate")]
channel = grpc.insecure_channel(sys.argv[1], options)
pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
method = pool.FindServiceByName(SERVICE).methods_by_name["ShouldRateLimit"]
Request = message_factory.GetMessageClass(method.input_type)
Response = message_factory.GetMessageClass(method.output_type)
should_rate_limit = channel.unary_unary(
    f"/{SERVICE}/ShouldRateLimit",
    request_serializer=Request.SerializeToString,
    response_deserializer=Response.FromString,
)
calls = [json_format.ParseDict(call, Request()) for call in json.loads(sys.argv[2])]
metadata = tuple(json.loads(sys.argv[3]).items()) if len(sys.argv) > 3 else None
responses = [should_rate_limit(call, timeout=10, metadata=metadata) for call in calls]
print(json.dumps([json_format.MessageToDict(response) for response in responses]))
