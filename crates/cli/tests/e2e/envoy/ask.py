"""Puts calls in JSON to the gRPC door, one after the other, and prints the answers in JSON.

The third word may be metadata that goes with each, as an object."""

import json
import sys

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"

# Of a unix socket this library would call the host `%2Frun%2F…`, which is none.
options = [("grpc.default_authority", "tidegate")]
channel = grpc.insecure_channel(sys.argv[1], options)
pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
method = pool.FindServiceByName(SERVICE).methods_by_name["ShouldRateLimit"]
Request = message_factory.GetMessageClass(method.input_type)
Response = message_factory.GetMessageClass(method.output_type)
ask = channel.unary_unary(
    f"/{SERVICE}/ShouldRateLimit",
    request_serializer=Request.SerializeToString,
    response_deserializer=Response.FromString,
)
calls = [json_format.ParseDict(call, Request()) for call in json.loads(sys.argv[2])]
metadata = tuple(json.loads(sys.argv[3]).items()) if len(sys.argv) > 3 else None
answers = [ask(call, timeout=10, metadata=metadata) for call in calls]
print(json.dumps([json_format.MessageToDict(answer) for answer in answers]))
