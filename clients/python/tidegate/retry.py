"""Retries for outbound calls: waits as long as the server asks, or backs off with full jitter."""

from __future__ import annotations

import random
import re
import threading
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, Callable
from urllib.error import HTTPError
from urllib.request import Request, urlopen

IDEMPOTENT_METHODS = frozenset(["DELETE", "GET", "HEAD", "OPTIONS", "PUT", "TRACE"])
RETRIED_STATUSES = frozenset([429, 502, 503, 504])
HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", re.ASCII)


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Returns the seconds to wait after `now` (Unix time), or `None` if the value is invalid."""
    value = (value or "").strip(" \t")
    if re.fullmatch("[0-9]+", value):
        return float(value)
    try:
        at = parsedate_to_datetime(value) if HTTP_DATE.fullmatch(value) else None
    except ValueError:
        at = None
    return None if at is None else max(0.0, at.timestamp() - now)


class RetryBudget:
    """Limits retries to a share of the calls, so that retries do not multiply an overload."""

    def __init__(self, ratio: float = 0.1, reserve: float = 10.0) -> None:
        self._ratio, self._reserve, self._tokens = ratio, reserve, reserve
        self._lock = threading.Lock()

    def deposit(self) -> None:
        """Counts a first attempt."""
        with self._lock:
            self._tokens = min(self._reserve, self._tokens + self._ratio)

    def withdraw(self) -> bool:
        """Takes one retry from the budget, if there is one."""
        with self._lock:
            allowed = self._tokens >= 1
            self._tokens -= allowed
            return allowed


class Retrier:
    """Calls a server politely. Share one per server: its calls share a retry budget.

    A call is repeated only if it is idempotent, after 429, 502, 503, 504 or a connection error. A
    `Retry-After` above `max_wait` seconds is not waited for: the caller gets the response at once.
    """

    def __init__(
        self,
        *,
        attempts: int = 4,
        base: float = 0.1,
        cap: float = 10.0,
        max_wait: float = 60.0,
        budget: RetryBudget | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._attempts, self._base, self._cap, self._max_wait = attempts, base, cap, max_wait
        self._budget = budget or RetryBudget()
        self._sleep, self._clock, self._now, self._uniform = sleep, clock, now, uniform

    def urlopen(
        self, request: str | Request, *, timeout: float = 30.0, idempotent: bool | None = None
    ) -> Any:
        """Like `urllib.request.urlopen`; `timeout` covers all attempts and waits together."""
        if isinstance(request, str):
            request = Request(request)
        if idempotent is None:
            idempotent = request.get_method() in IDEMPOTENT_METHODS

        def send(time_left: float) -> Any:
            try:
                return urlopen(request, timeout=time_left)
            except HTTPError as refusal:
                return refusal

        response = self.call(send, timeout=timeout, idempotent=idempotent)
        if isinstance(response, HTTPError):
            raise response
        return response

    def call(self, send: Callable[[float], Any], *, timeout: float, idempotent: bool) -> Any:
        """Calls `send(time_left)` until its response (`status`, `headers`, `close()`) is final."""
        expires_at = self._clock() + timeout
        self._budget.deposit()
        attempt = 0
        while True:
            attempt += 1
            response = error = None
            try:
                response = send(expires_at - self._clock())
            except (OSError, HTTPException) as failure:
                error = failure
            wait = self._wait_before_retry(attempt, response)
            if (
                not idempotent
                or attempt >= self._attempts
                or wait is None
                or self._clock() + wait >= expires_at
                or not self._budget.withdraw()
            ):
                if error is not None:
                    raise error
                return response
            if response is not None:
                response.close()
            self._sleep(wait)

    def _wait_before_retry(self, attempt: int, response: Any) -> float | None:
        """Returns the seconds to wait after this attempt; `None` if its response is final."""
        if response is not None and response.status not in RETRIED_STATUSES:
            return None
        # Full jitter: clients that were refused together do not retry together.
        jitter = self._uniform(0.0, min(self._cap, self._base * 2 ** (attempt - 1)))
        retry_after = None if response is None else response.headers.get("Retry-After")
        asked = parse_retry_after(retry_after, self._now())
        if asked is None:
            return jitter
        return asked + jitter if asked <= self._max_wait else None
