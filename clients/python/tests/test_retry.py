"""Retries of callers, in virtual time."""

import json
import unittest
from datetime import datetime
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request
from unittest.mock import patch

from tidegate.retry import Retrier, RetryBudget, parse_retry_after

VALUES = json.loads((Path(__file__).parents[2] / "retry-after.json").read_text())
NOW = datetime.fromisoformat(VALUES["now"].replace("Z", "+00:00")).timestamp()


class Response:
    def __init__(self, status, retry_after=None):
        self.status, self.closed = status, False
        self.headers = {} if retry_after is None else {"Retry-After": retry_after}

    def close(self):
        self.closed = True


class Server:
    """Gives these replies in turn; the last one stays. Sleeping moves the clock."""

    def __init__(self, *replies, jitter=1.0, **options):
        self.replies, self.calls, self.waits, self.time = list(replies), 0, [], 0.0
        self.retrier = Retrier(
            sleep=self.sleep,
            clock=lambda: self.time,
            now=lambda: NOW + self.time,
            uniform=lambda low, high: low + jitter * (high - low),
            **options,
        )

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.time += seconds

    def send(self, time_left):
        self.calls += 1
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def call(self, timeout=1000.0, idempotent=True):
        return self.retrier.call(self.send, timeout=timeout, idempotent=idempotent)


class RetryAfterTest(unittest.TestCase):
    def test_values_are_parsed_as_listed(self):
        self.assertGreater(len(VALUES["cases"]), 20)
        for case in VALUES["cases"]:
            self.assertEqual(parse_retry_after(case["value"], NOW), case["seconds"], case)

    def test_huge_values_exceed_any_ceiling(self):
        for value in VALUES["above_any_ceiling"]:
            self.assertGreater(parse_retry_after(value, NOW), 10**10)

    def test_missing_value_is_none(self):
        self.assertIsNone(parse_retry_after(None, NOW))


class RetrierTest(unittest.TestCase):
    def test_waits_as_long_as_asked_plus_jitter(self):
        for retry_after in ("30", "Thu, 19 Nov 2026 12:00:30 GMT"):
            first = Response(429, retry_after)
            server = Server(first, Response(200), jitter=0.5)
            self.assertEqual(server.call().status, 200)
            self.assertEqual(server.waits, [30.05])
            self.assertTrue(first.closed)

    def test_backs_off_exponentially_up_to_the_cap(self):
        replies = [Response(503) for _ in range(6)]
        server = Server(*replies, attempts=6, base=1, cap=5)
        self.assertIs(server.call(), replies[-1])
        self.assertEqual(server.waits, [1, 2, 4, 5, 5])
        self.assertEqual([reply.closed for reply in replies], [True] * 5 + [False])

    def test_jitter_covers_the_whole_back_off(self):
        server = Server(Response(503), jitter=0.0)
        server.call()
        self.assertEqual(server.waits, [0, 0, 0])

    def test_invalid_retry_after_backs_off(self):
        server = Server(Response(429, "-1"), Response(200), base=1)
        server.call()
        self.assertEqual(server.waits, [1])

    def test_retry_after_above_the_ceiling_is_returned_at_once(self):
        for value in ["61", *VALUES["above_any_ceiling"]]:
            server = Server(Response(429, value))
            self.assertEqual(server.call(timeout=1e30).status, 429)
            self.assertEqual((server.calls, server.waits), (1, []))

    def test_deadline_is_not_exceeded(self):
        server = Server(Response(429, "20"), jitter=0.0)
        self.assertEqual(server.call(timeout=50.0).status, 429)
        self.assertEqual(server.waits, [20, 20])

    def test_unsafe_call_is_not_repeated(self):
        for reply in (Response(429, "1"), Response(503)):
            server = Server(reply)
            self.assertEqual(server.call(idempotent=False).status, reply.status)
            self.assertEqual(server.calls, 1)

    def test_final_statuses_are_not_repeated(self):
        for status in (200, 301, 400, 404, 500, 501):
            server = Server(Response(status, "1"))
            self.assertEqual(server.call().status, status)
            self.assertEqual(server.calls, 1)

    def test_connection_error_is_repeated_then_raised(self):
        server = Server(ConnectionResetError("reset"), ConnectionResetError("again"), attempts=2)
        with self.assertRaisesRegex(ConnectionResetError, "again"):
            server.call()
        self.assertEqual(server.calls, 2)

    def test_budget_limits_retries_of_all_calls(self):
        server = Server(Response(503), attempts=2, budget=RetryBudget(ratio=0.1, reserve=10))
        for _ in range(1000):
            server.call()
        # The reserve, and a tenth of the calls.
        self.assertIn(server.calls - 1000, range(105, 112))

    def test_urlopen_repeats_idempotent_methods_only(self):
        for request, calls in ((Request("http://a/"), 4), (Request("http://a/", data=b"x"), 1)):
            refusal = HTTPError("http://a/", 429, "Too Many Requests", {}, None)
            server = Server(Response(200))
            with patch("tidegate.retry.urlopen", side_effect=refusal) as opened:
                with self.assertRaises(HTTPError):
                    server.retrier.urlopen(request)
            self.assertEqual(opened.call_count, calls)


if __name__ == "__main__":
    unittest.main()
