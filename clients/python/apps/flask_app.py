"""The application of the conformance tests on Flask; see ../../README.md."""

import json
import logging
import sys
from threading import Thread

from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from tidegate.wsgi import RateLimitMiddleware

METHODS = ["GET", "HEAD", "OPTIONS", "POST"]


def find_facts(environ):
    names = {"user_id": "HTTP_X_SESSION", "cost": "HTTP_X_POINTS"}
    return {fact: environ[name] for fact, name in names.items() if name in environ}


def build_app(settings, listener):
    app = Flask(__name__)

    @app.route("/", defaults={"path": ""}, methods=METHODS)
    @app.route("/<path:path>", methods=METHODS)
    def handle(path):
        return "handled", {"x-handled": "yes"}

    app.wsgi_app = RateLimitMiddleware(
        app.wsgi_app,
        url=settings["tidegate"],
        deadline=listener["deadline_ms"] / 1000,
        on_fail=listener["on_fail"],
        facts=find_facts,
        skip=lambda environ: environ["PATH_INFO"] == "/skipped",
    )
    return app


logging.getLogger("werkzeug").setLevel(logging.ERROR)
WSGIRequestHandler.protocol_version = "HTTP/1.1"
settings = json.loads(sys.argv[1])
for listener in settings["listeners"]:
    app = build_app(settings, listener)
    server = make_server("127.0.0.1", listener["port"], app, threaded=True)
    Thread(target=server.serve_forever).start()
