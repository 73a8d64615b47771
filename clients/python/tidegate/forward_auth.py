"""What the ASGI and the WSGI middleware share: the question, the answer, and the breaker.

The middleware describes a request to `/v1/forward-auth` in headers. The server knows the rules,
finds the identity of the client and decides. Nothing here counts requests.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass, field
from string import punctuation
from typing import Callable, Iterable
from urllib.parse import quote, quote_from_bytes, urlsplit

log = logging.getLogger("tidegate")

FACT_PREFIX = "tidegate-fact-"
# Headers of one connection, and headers that describe the request to the server: only this
# middleware may write those. `Connection` may name further headers, but these are forwarded:
# otherwise a client could hide its API key from the server.
NOT_FORWARDED = frozenset(
    "connection content-length expect forwarded host keep-alive proxy-connection te trailer "
    "transfer-encoding upgrade x-forwarded-for x-forwarded-host x-forwarded-method "
    "x-forwarded-uri x-original-method x-original-uri x-original-url x-real-ip".split()
)
NOT_RETURNED = frozenset(
    "connection date keep-alive transfer-encoding x-ratelimit-decision".split()
)
LIMIT_HEADERS = re.compile(rb"x-ratelimit-|ratelimit|access-control-expose-headers$")
# What the server accepts: 100 headers, and a head of 32 KiB.
MAX_HEADERS, MAX_HEAD_BYTES = 100, 31 * 1024
HEADER_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+: [\t\x20-\x7e\x80-\xff]*")


@dataclass
class Verdict:
    """What to do with a request: without a `status`, the application handles it."""

    status: int | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


UNAVAILABLE = b'{"error":"rate_limiter_unavailable","message":"The rate limiter is unavailable."}'


def refuse(status: int, body: bytes = b"") -> Verdict:
    """Returns a refusal that does not come from the server."""
    headers = [(b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
    headers += [(b"content-type", b"application/json")] if body else []
    return Verdict(status, headers, body)


class Breaker:
    """Stops asking a server that is down: after three failures, one request per second asks."""

    FAILURES, PAUSE_SECONDS = 3, 1.0

    def __init__(self, server: str, on_fail: str, clock: Callable[[], float]) -> None:
        self._server, self._on_fail, self._clock = server, on_fail, clock
        self._lock, self._failures, self._ask_at = threading.Lock(), 0, None

    def admits(self) -> bool:
        """Returns whether a request may ask the server."""
        with self._lock:
            if self._ask_at is not None:
                if self._clock() < self._ask_at:
                    return False
                self._ask_at = self._clock() + self.PAUSE_SECONDS
            return True

    def record_success(self) -> None:
        with self._lock:
            if self._ask_at is not None:
                log.warning("tidegate at %s answers again; its limits apply", self._server)
            self._failures, self._ask_at = 0, None

    def record_failure(self, error: Exception) -> None:
        with self._lock:
            self._failures += 1
            if self._ask_at is None and self._failures >= self.FAILURES:
                self._ask_at = self._clock() + self.PAUSE_SECONDS
                action = "pass without limits" if self._on_fail == "allow" else "get 503"
                reason = str(error) or "timed out"
                message = "tidegate at %s does not answer (%s); until it does, requests %s"
                log.warning(message, self._server, reason, action)


class ForwardAuth:
    """Options of the middleware, the question to the server, and the meaning of its answer."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8081",
        *,
        deadline: float = 0.05,
        on_fail: str = "allow",
        facts: Callable[[dict], dict] | None = None,
        skip: Callable[[dict], bool] | None = None,
        drop_headers: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(f"url: write http://HOST:PORT of Tidegate's HTTP API, not {url!r}")
        if on_fail not in ("allow", "deny"):
            raise ValueError(f"on_fail: write 'allow' or 'deny', not {on_fail!r}")
        if not deadline > 0:
            raise ValueError(f"deadline: write seconds above 0, not {deadline!r}")
        self.address, self.deadline = (parts.hostname, parts.port or 80), deadline
        self.facts, self.skip = facts, skip
        self.breaker = Breaker(parts.netloc, on_fail, clock)
        self.fallback = Verdict() if on_fail == "allow" else refuse(503, UNAVAILABLE)
        self._start = b"GET /v1/forward-auth HTTP/1.1\r\nhost: " + parts.netloc.encode()
        dropped = NOT_FORWARDED | {name.lower() for name in drop_headers}
        self._dropped = frozenset(name.encode() for name in dropped)

    def encode_question(
        self,
        method: str,
        target: bytes,
        peer: str | None,
        headers: list[tuple[bytes, bytes]],
        facts: dict,
    ) -> bytes | Verdict:
        """Returns the request to the server, or the answer to one that the server cannot read."""
        if not target.isascii():
            target = quote_from_bytes(target, safe=punctuation).encode()
        lines = [b"x-forwarded-method: " + method.encode(), b"x-forwarded-uri: " + target]
        hosts = [value for name, value in headers if name == b"host"]
        lines += [b"x-forwarded-host: " + host for host in hosts[:1] if host]
        hops = [value for name, value in headers if name == b"x-forwarded-for"]
        hops += [peer.encode()] if peer else []
        lines += [b"x-forwarded-for: " + b", ".join(hops)] if hops else []
        prefix = FACT_PREFIX.encode()
        for name, value in headers:
            if name not in self._dropped and not name.startswith(prefix):
                lines.append(name + b": " + value)
        for name, value in facts.items():
            if value is not None:
                lines.append(f"{FACT_PREFIX}{name.replace('_', '-')}: {value}".encode())
        if not all(map(HEADER_LINE.fullmatch, lines)):
            return refuse(400)
        question = b"\r\n".join([self._start, *lines, b"\r\n"])
        # The server would close the connection, which must not look like an outage.
        if len(lines) >= MAX_HEADERS or len(question) > MAX_HEAD_BYTES:
            return refuse(431)
        return question

    @staticmethod
    def read_verdict(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Verdict:
        """Returns the server's decision. Raises `OSError` if the answer contains none."""
        decision = dict(headers).get(b"x-ratelimit-decision")
        kept = [pair for pair in headers if pair[0].decode("latin-1") not in NOT_RETURNED]
        if decision == b"allow":
            return Verdict(None, [pair for pair in kept if LIMIT_HEADERS.match(pair[0])])
        # Without a decision: the request is ambiguous, for instance has two API keys (400), or is
        # too long (431).
        if decision == b"deny" or status in (400, 431):
            return Verdict(status, kept, body)
        raise OSError(f"it answers with status {status}: {body[:300].decode(errors='replace')}")


def parse_answer(data: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
    """Parses a whole response; returns `None` while bytes are missing."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    status_line, *lines = head.split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    length = int(dict(headers).get(b"content-length", -1))
    if len(body) > length or not status_line.startswith(b"HTTP/1."):
        raise ValueError("the answer is not that of an HTTP server")
    return (int(status_line[9:12]), headers, body) if len(body) == length else None


def is_persistent(headers: list[tuple[bytes, bytes]]) -> bool:
    """Returns whether the server leaves the connection open."""
    return dict(headers).get(b"connection", b"").lower() != b"close"


def quote_path(path: str, encoding: str) -> bytes:
    """Encodes a decoded path, for servers that do not keep the path as the client sent it."""
    return quote(path, safe="/:@!$&'()*+,;=~", encoding=encoding).encode()
