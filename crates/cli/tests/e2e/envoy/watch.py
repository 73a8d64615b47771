"""Watches the health of a server while it is told to stop."""

import os
import signal
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

address, process = sys.argv[1], int(sys.argv[2])
health = health_pb2_grpc.HealthStub(grpc.insecure_channel(address))
heard = []
try:
    for answer in health.Watch(health_pb2.HealthCheckRequest(service="ratelimit"), timeout=20):
        heard.append(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
        if len(heard) == 1:
            os.kill(process, signal.SIGTERM)
except grpc.RpcError as error:
    heard.append(error.code().name)
print(*heard)
