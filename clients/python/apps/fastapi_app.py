"""The application of the conformance tests on FastAPI; see ../../README.md."""

import json
import sys
from threading import Thread

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

from tidegate.asgi import RateLimitMiddleware

METHODS = ["GET", "HEAD", "OPTIONS", "POST"]


def find_facts(scope):
    headers = dict(scope["headers"])
    names = {"user_id": b"x-session", "cost": b"x-points"}
    return {fact: headers[name].decode() for fact, name in names.items() if name in headers}


def build_app(settings, listener):
    app = FastAPI()
    app.add_middleware(
        RateLimitMiddleware,
        url=settings["tidegate"],
        deadline=listener["deadline_ms"] / 1000,
        on_fail=listener["on_fail"],
        facts=find_facts,
        skip=lambda scope: scope["path"] == "/skipped",
    )

    @app.api_route("/{path:path}", methods=METHODS)
    async def handle(request: Request):
        return PlainTextResponse("handled", headers={"x-handled": "yes"})

    return app


settings = json.loads(sys.argv[1])
for listener in settings["listeners"]:
    app = build_app(settings, listener)
    config = uvicorn.Config(app, port=listener["port"], log_level="warning")
    Thread(target=uvicorn.Server(config).run).start()
