"""A caller of the gRPC door that knows no message: reflection tells it all of them."""

import sys

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
OK, OVER_LIMIT = 1, 2

channel = grpc.insecure_channel(sys.argv[1])
database = ProtoReflectionDescriptorDatabase(channel)
pool = DescriptorPool(database)


def equal(found, expected):
    assert found == expected, f"{found!r} is not {expected!r}"


def refused(code, call):
    try:
        call()
    except grpc.RpcError as error:
        equal(error.code(), code)
        return error.details()
    raise AssertionError(f"it was not refused with {code}")


# Every service is listed and can be described, as grpcurl does it.
services = database.get_services()
assert {SERVICE, "grpc.health.v1.Health"} <= set(services), services
for name in services:
    for method in pool.FindServiceByName(name).methods:
        assert method.input_type.full_name and method.output_type.full_name
pool.FindMessageTypeByName("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry")
pool.FindEnumTypeByName("envoy.type.v3.RateLimitUnit")

method = pool.FindServiceByName(SERVICE).methods_by_name["ShouldRateLimit"]
Request = message_factory.GetMessageClass(method.input_type)
Response = message_factory.GetMessageClass(method.output_type)
should_rate_limit = channel.unary_unary(
    f"/{SERVICE}/ShouldRateLimit",
    request_serializer=Request.SerializeToString,
    response_deserializer=Response.FromString,
)


def request(*descriptors, domain="edge", hits=0):
    message = Request(domain=domain, hits_addend=hits)
    for entries, more in descriptors:
        descriptor = message.descriptors.add(**more)
        for key, value in entries:
            descriptor.entries.add(key=key, value=value)
    return message


def ask(*descriptors, **more):
    return should_rate_limit(request(*descriptors, **more), timeout=20)


IP = ([("remote_address", "192.0.2.7")], {})

# The limit, to the unit, with all that is told of it.
for left in (2, 1, 0):
    answer = ask(IP)
    equal((answer.overall_code, answer.statuses[0].limit_remaining), (OK, left))
answer = ask(IP)
status = answer.statuses[0]
equal((answer.overall_code, status.code, len(answer.statuses)), (OVER_LIMIT, OVER_LIMIT, 1))
limit = status.current_limit
equal((limit.requests_per_unit, limit.unit, limit.name), (3, 5, "per-ip"))
assert status.duration_until_reset.seconds >= 1 and status.duration_until_reset.nanos == 0
headers = {header.key: header.value for header in answer.response_headers_to_add}
equal(headers["retry-after"], str(status.duration_until_reset.seconds))

# All or none: the user pays nothing while the address is refused.
ann = [("user", "ann")]
equal([s.code for s in ask(IP, (ann, {})).statuses], [OVER_LIMIT, OK])
equal(ask((ann, {"hits_addend": {"value": 0}})).statuses[0].limit_remaining, 10)

# Addends: 0 of the call is 1, 0 of the descriptor looks, negative ones give back.
equal(ask((ann, {})).statuses[0].limit_remaining, 9)
equal(ask((ann, {}), hits=4).statuses[0].limit_remaining, 5)
equal(ask((ann, {"hits_addend": {"value": 2}}), hits=4).statuses[0].limit_remaining, 3)
back = {"hits_addend": {"value": 6}, "is_negative_hits": True}
equal(ask((ann, back)).statuses[0].limit_remaining, 9)

# A charge after the fact goes past the limit, and a look hears of it.
model = [("budget", "model")]
equal(ask((model, {"hits_addend": {"value": 99}})).overall_code, OK)
equal(ask((model, {"hits_addend": {"value": 50}})).overall_code, OVER_LIMIT)
equal(ask((model, {"hits_addend": {"value": 0}})).overall_code, OVER_LIMIT)

# A limit in the descriptor counts without any rule.
own = ([("x", "y")], {"limit": {"requests_per_unit": 1, "unit": "YEAR"}})
equal([ask(own).overall_code for _ in range(2)], [OK, OVER_LIMIT])

# No rule, no limit; an unknown domain is no mistake.
answer = ask(([("other", "z")], {}), domain="nowhere")
equal((answer.overall_code, answer.statuses[0].HasField("current_limit")), (OK, False))

# What is wrong is told.
invalid = grpc.StatusCode.INVALID_ARGUMENT
assert "domain" in refused(invalid, lambda: ask(IP, domain=""))
assert "descriptors" in refused(invalid, lambda: ask())
assert "1024" in refused(invalid, lambda: ask(*[IP] * 1025))
large = lambda size: ([("user", "x" * size)], {})
refused(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: ask(large(4 << 20)))

# Whatever Envoy can send is decided, in its place: no entries, many descriptors, long values.
equal([s.code for s in ask(([], {}), (ann, back), ([], {})).statuses], [OK, OK, OK])
equal([s.code for s in ask(*[([], {})] * 40, IP).statuses], [OK] * 40 + [OVER_LIMIT])
equal(ask(large(3 << 20)).statuses[0].limit_remaining, 9)
zipped = request((ann, {}), ([("user", "y" * 2_000)], {}))
compress = lambda: should_rate_limit(zipped, timeout=20, compression=grpc.Compression.Gzip)
refused(grpc.StatusCode.UNIMPLEMENTED, compress)
nowhere = channel.unary_unary("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit")
refused(grpc.StatusCode.UNIMPLEMENTED, lambda: nowhere(b"", timeout=20))

# Health, as Kubernetes and the reference server's users ask for it.
health = health_pb2_grpc.HealthStub(channel)
for name in ("", SERVICE, "ratelimit"):
    answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=20)
    equal(answer.status, health_pb2.HealthCheckResponse.SERVING)
listed = health.List(health_pb2.HealthListRequest(), timeout=20).statuses
equal(set(listed), {"", SERVICE, "ratelimit"})
unknown = health_pb2.HealthCheckRequest(service="unknown")
refused(grpc.StatusCode.NOT_FOUND, lambda: health.Check(unknown, timeout=20))

print("well")
