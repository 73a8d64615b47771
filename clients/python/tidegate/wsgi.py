"""Middleware for WSGI applications such as Flask and Django."""

from __future__ import annotations

import socket
import time
from http import HTTPStatus
from typing import Any, Callable, Iterable

from .forward_auth import ForwardAuth, Verdict, is_persistent, parse_answer, quote_path

MAX_IDLE = 32


class RateLimitMiddleware:
    """Asks Tidegate about each request.

    `facts` and `skip` receive the WSGI environment. The other options are those of `ForwardAuth`.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]], *args: Any, **options: Any) -> None:
        self.app, self._auth = app, ForwardAuth(*args, **options)
        # Threads share it; `append` and `pop` are atomic.
        self._idle: list[socket.socket] = []

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        auth = self._auth
        if auth.skip and auth.skip(environ):
            return self.app(environ, start_response)
        verdict = self._decide(environ)
        added = [(name.decode(), value.decode("latin-1")) for name, value in verdict.headers]
        if verdict.status is not None:
            start_response(f"{verdict.status} {HTTPStatus(verdict.status).phrase}", added)
            return [b"" if environ["REQUEST_METHOD"] == "HEAD" else verdict.body]

        def start_with_limits(status: str, headers: list, exc_info: Any = None) -> Callable:
            names = {name.lower() for name, _ in headers}
            headers = headers + [pair for pair in added if pair[0] not in names]
            return start_response(status, headers, exc_info)

        return self.app(environ, start_with_limits)

    def _decide(self, environ: dict) -> Verdict:
        auth, peer = self._auth, environ.get("REMOTE_ADDR")
        facts = auth.facts(environ) if auth.facts else {}
        target, headers = read_target(environ), read_headers(environ)
        question = auth.encode_question(environ["REQUEST_METHOD"], target, peer, headers, facts)
        if isinstance(question, Verdict):
            return question
        if not auth.breaker.admits():
            return auth.fallback
        try:
            verdict = auth.read_verdict(*self._ask(question))
        except (OSError, ValueError) as error:
            auth.breaker.record_failure(error)
            return auth.fallback
        auth.breaker.record_success()
        return verdict

    def _ask(self, question: bytes) -> tuple[int, list, bytes]:
        expires_at = time.monotonic() + self._auth.deadline

        def time_left() -> float:
            left = expires_at - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            return left

        while True:
            try:
                connection, is_reused = self._idle.pop(), True
            except IndexError:
                connection = socket.create_connection(self._auth.address, time_left())
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                is_reused = False
            keep, data = False, b""
            try:
                connection.settimeout(time_left())
                connection.sendall(question)
                while (answer := parse_answer(data)) is None:
                    connection.settimeout(time_left())
                    chunk = connection.recv(65536)
                    if not chunk:
                        raise ConnectionResetError("it closed the connection")
                    data += chunk
                keep = is_persistent(answer[1]) and len(self._idle) < MAX_IDLE
                return answer
            except ConnectionError:
                # The server may close an idle connection at any time.
                if data or not is_reused:
                    raise
            finally:
                # Also after a timeout: the late answer must not reach the next request.
                if keep:
                    self._idle.append(connection)
                else:
                    connection.close()


def read_target(environ: dict) -> bytes:
    """Returns path and query as the client sent them, if the server keeps them."""
    raw = environ.get("REQUEST_URI") or environ.get("RAW_URI")
    if raw:
        return raw.encode("latin-1", errors="surrogateescape")
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    target = quote_path(path or "/", "latin-1")
    query = environ.get("QUERY_STRING", "").encode("latin-1")
    return target + b"?" + query if query else target


def read_headers(environ: dict) -> list[tuple[bytes, bytes]]:
    """Returns the headers of the request, in lower case."""
    named = {name[5:]: value for name, value in environ.items() if name.startswith("HTTP_")}
    if environ.get("CONTENT_TYPE"):
        named["CONTENT_TYPE"] = environ["CONTENT_TYPE"]
    return [
        (name.replace("_", "-").lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in named.items()
    ]
