"""Watches the health of a server while it shuts down."""

import os
import signal
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

address, process = sys.argv[1], int(sys.argv[2])
health = health_pb2_grpc.HealthStub(grpc.insecure_channel(address))
statuses = []
try:
    for response in health.Watch(health_pb2.HealthCheckRequest(service="ratelimit"), timeout=20):
        statuses.append(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))
        if len(statuses) == 1:
            os.kill(process, signal.SIGTERM)
except grpc.RpcError as error:
    statuses.append(error.code().name)
print(*statuses)
