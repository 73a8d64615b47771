"""Prints the replies that redis-py gets from the RESP listener, as one line of JSON.

Arguments: port, password or empty."""

import json
import sys
import threading

import redis

port, password = int(sys.argv[1]), sys.argv[2] or None


def send_commands(client):
    replies = {"ping": client.ping(), "echo": client.echo("hello")}
    replies["throttle"] = [client.execute_command("CL.THROTTLE", "py", 2, 1, 3600) for _ in range(4)]
    replies["peek"] = client.execute_command("CL.THROTTLE", "py", 2, 1, 3600, 0)
    replies["crab"] = client.execute_command("THROTTLE", "py-crab", 2, 1, 3600)
    check = client.execute_command("TIDEGATE.CHECK", "api_key", "py")
    replies["check"] = plain(check)
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(100):
            pipeline.execute_command("CL.THROTTLE", "py-pipeline", 9, 1, 3600)
        replies["pipeline"] = sum(1 for reply in pipeline.execute() if reply[0] == 0)
    try:
        client.get("x")
    except redis.ResponseError as error:
        replies["unknown"] = str(error)
    client.client_setname("worker")
    replies["name"] = client.client_getname()
    return replies


def plain(reply):
    """Names and values as a dict, for both RESP3 maps and RESP2 lists."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    text = lambda value: value.decode() if isinstance(value, bytes) else value
    return {text(name): text(value) for name, value in pairs}


def crowd(client):
    """Sends commands from eight threads with separate connections; returns how many passed."""
    passed = []

    def send():
        for _ in range(50):
            passed.append(client.execute_command("CL.THROTTLE", "py-crowd", 99, 1, 3600)[0] == 0)

    threads = [threading.Thread(target=send) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return sum(passed)


replies = {"version": redis.__version__}
for protocol in (3, 2):
    client = redis.Redis(
        port=port, password=password, protocol=protocol, decode_responses=True, client_name="tests"
    )
    replies[f"resp{protocol}"] = send_commands(client)
    client.execute_command("TIDEGATE.RESET", "api_key", "py")
replies["crowd"] = crowd(redis.Redis(port=port, password=password))
print(json.dumps(replies))
