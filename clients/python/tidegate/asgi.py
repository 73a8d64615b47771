"""Middleware for ASGI applications such as FastAPI and Starlette."""

from __future__ import annotations

import asyncio
from typing import Any, Awaitable, Callable

from .forward_auth import ForwardAuth, Verdict, is_persistent, parse_answer, quote_path

MAX_IDLE = 32


class RateLimitMiddleware:
    """Asks Tidegate about each HTTP request. WebSocket and lifespan scopes pass.

    `facts` and `skip` receive the ASGI scope. The other options are those of `ForwardAuth`.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], *args: Any, **options: Any) -> None:
        self.app, self._auth = app, ForwardAuth(*args, **options)
        # Connections belong to the event loop that opened them.
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        auth = self._auth
        if scope["type"] != "http" or (auth.skip and auth.skip(scope)):
            await self.app(scope, receive, send)
            return
        verdict = await self._decide(scope)
        if verdict.status is not None:
            start = {"type": "http.response.start", "status": verdict.status}
            await send({**start, "headers": verdict.headers})
            body = b"" if scope["method"] == "HEAD" else verdict.body
            await send({"type": "http.response.body", "body": body})
            return

        async def send_with_limits(message: dict) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                names = {name.lower() for name, _ in headers}
                headers += [pair for pair in verdict.headers if pair[0] not in names]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, send_with_limits)

    async def _decide(self, scope: dict) -> Verdict:
        auth = self._auth
        # `raw_path` is the path as the client sent it; not every server supplies it.
        target = scope.get("raw_path") or quote_path(scope["path"], "utf-8")
        if scope.get("query_string"):
            target += b"?" + scope["query_string"]
        peer = (scope.get("client") or (None,))[0]
        facts = auth.facts(scope) if auth.facts else {}
        headers = scope["headers"]
        question = auth.encode_question(scope["method"], target, peer, headers, facts)
        if isinstance(question, Verdict):
            return question
        if not auth.breaker.admits():
            return auth.fallback
        try:
            async with asyncio.timeout(auth.deadline):
                answer = await self._ask(question)
            verdict = auth.read_verdict(*answer)
        except (OSError, ValueError) as error:
            auth.breaker.record_failure(error)
            return auth.fallback
        auth.breaker.record_success()
        return verdict

    async def _ask(self, question: bytes) -> tuple[int, list, bytes]:
        if self._loop is not asyncio.get_running_loop():
            self._loop, self._idle = asyncio.get_running_loop(), []
        while True:
            idle, is_reused, keep, data = self._idle, bool(self._idle), False, b""
            stream = idle.pop() if idle else await asyncio.open_connection(*self._auth.address)
            reader, writer = stream
            try:
                writer.write(question)
                while (answer := parse_answer(data)) is None:
                    chunk = await reader.read(65536)
                    if not chunk:
                        raise ConnectionResetError("it closed the connection")
                    data += chunk
                keep = is_persistent(answer[1]) and len(idle) < MAX_IDLE
                return answer
            except ConnectionError:
                # The server may close an idle connection at any time.
                if data or not is_reused:
                    raise
            finally:
                # Also after a timeout: the late answer must not reach the next request.
                if keep:
                    idle.append(stream)
                else:
                    writer.close()
