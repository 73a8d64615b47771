"""A client of the gRPC listener that learns all messages by reflection."""

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


def assert_equal(actual, expected):
    assert actual == expected, f"{actual!r} is not {expected!r}"


def assert_refused(code, call):
    try:
        call()
    except grpc.RpcError as error:
        assert_equal(error.code(), code)
        return error.details()
    raise AssertionError(f"the call was not refused with {code}")


# Reflection lists and describes every service, as grpcurl needs it.
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


def check(*descriptors, **more):
    return should_rate_limit(request(*descriptors, **more), timeout=20)


IP = ([("remote_address", "192.0.2.7")], {})

# The limit is exact, and each response reports it in full.
for remaining in (2, 1, 0):
    response = check(IP)
    assert_equal((response.overall_code, response.statuses[0].limit_remaining), (OK, remaining))
response = check(IP)
status = response.statuses[0]
assert_equal((response.overall_code, status.code, len(response.statuses)), (OVER_LIMIT, OVER_LIMIT, 1))
limit = status.current_limit
assert_equal((limit.requests_per_unit, limit.unit, limit.name), (3, 5, "per-ip"))
assert status.duration_until_reset.seconds >= 1 and status.duration_until_reset.nanos == 0
headers = {header.key: header.value for header in response.response_headers_to_add}
assert_equal(headers["retry-after"], str(status.duration_until_reset.seconds))

# All or none: the user is not charged while the address is refused.
ann = [("user", "ann")]
assert_equal([s.code for s in check(IP, (ann, {})).statuses], [OVER_LIMIT, OK])
assert_equal(check((ann, {"hits_addend": {"value": 0}})).statuses[0].limit_remaining, 10)

# Addends: 0 in the call means 1, 0 in a descriptor only reads, negative hits refund.
assert_equal(check((ann, {})).statuses[0].limit_remaining, 9)
assert_equal(check((ann, {}), hits=4).statuses[0].limit_remaining, 5)
assert_equal(check((ann, {"hits_addend": {"value": 2}}), hits=4).statuses[0].limit_remaining, 3)
refund = {"hits_addend": {"value": 6}, "is_negative_hits": True}
assert_equal(check((ann, refund)).statuses[0].limit_remaining, 9)

# A charge after the response may exceed the limit; a read then reports it.
model = [("budget", "model")]
assert_equal(check((model, {"hits_addend": {"value": 99}})).overall_code, OK)
assert_equal(check((model, {"hits_addend": {"value": 50}})).overall_code, OVER_LIMIT)
assert_equal(check((model, {"hits_addend": {"value": 0}})).overall_code, OVER_LIMIT)

# A limit in the descriptor applies without any rule.
inline = ([("x", "y")], {"limit": {"requests_per_unit": 1, "unit": "YEAR"}})
assert_equal([check(inline).overall_code for _ in range(2)], [OK, OVER_LIMIT])

# Without a matching rule there is no limit; an unknown domain is not an error.
response = check(([("other", "z")], {}), domain="nowhere")
assert_equal((response.overall_code, response.statuses[0].HasField("current_limit")), (OK, False))

# Invalid calls are refused with an explanation.
invalid = grpc.StatusCode.INVALID_ARGUMENT
assert "domain" in assert_refused(invalid, lambda: check(IP, domain=""))
assert "descriptors" in assert_refused(invalid, lambda: check())
assert "1024" in assert_refused(invalid, lambda: check(*[IP] * 1025))
large = lambda size: ([("user", "x" * size)], {})
assert_refused(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: check(large(4 << 20)))

# Every call that Envoy can send gets a decision for each descriptor: no entries, many descriptors,
# long values.
assert_equal([s.code for s in check(([], {}), (ann, refund), ([], {})).statuses], [OK, OK, OK])
assert_equal([s.code for s in check(*[([], {})] * 40, IP).statuses], [OK] * 40 + [OVER_LIMIT])
assert_equal(check(large(3 << 20)).statuses[0].limit_remaining, 9)
zipped = request((ann, {}), ([("user", "y" * 2_000)], {}))
compress = lambda: should_rate_limit(zipped, timeout=20, compression=grpc.Compression.Gzip)
assert_refused(grpc.StatusCode.UNIMPLEMENTED, compress)
nowhere = channel.unary_unary("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit")
assert_refused(grpc.StatusCode.UNIMPLEMENTED, lambda: nowhere(b"", timeout=20))

# Health checks, as Kubernetes and clients of Envoy's reference server send them.
health = health_pb2_grpc.HealthStub(channel)
for name in ("", SERVICE, "ratelimit"):
    response = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=20)
    assert_equal(response.status, health_pb2.HealthCheckResponse.SERVING)
listed = health.List(health_pb2.HealthListRequest(), timeout=20).statuses
assert_equal(set(listed), {"", SERVICE, "ratelimit"})
unknown = health_pb2.HealthCheckRequest(service="unknown")
assert_refused(grpc.StatusCode.NOT_FOUND, lambda: health.Check(unknown, timeout=20))

print("ok")
