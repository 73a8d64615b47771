"""What the tests on real sockets do not show: breaker, options, scopes and servers."""

import asyncio
import logging
import unittest

from tidegate.asgi import RateLimitMiddleware
from tidegate.forward_auth import Breaker, ForwardAuth, Verdict, parse_answer
from tidegate.wsgi import read_headers, read_target


class BreakerTest(unittest.TestCase):
    def setUp(self):
        self.time = 100.0
        self.breaker = Breaker("t:1", "allow", lambda: self.time)

    def fail(self, times):
        for _ in range(times):
            self.breaker.record_failure(OSError("refused"))

    def test_opens_after_three_failures_and_asks_once_per_second(self):
        self.fail(2)
        self.assertTrue(self.breaker.admits())
        with self.assertLogs("tidegate") as logs:
            self.fail(1)
            self.assertFalse(self.breaker.admits())
            self.fail(5)
            self.time += 1.0
            self.assertEqual([self.breaker.admits() for _ in range(3)], [True, False, False])
            self.time += 1.0
            self.assertTrue(self.breaker.admits())
            self.breaker.record_success()
        self.assertTrue(self.breaker.admits())
        self.assertEqual(
            [record.getMessage() for record in logs.records],
            [
                "tidegate at t:1 does not answer (refused); until it does, "
                "requests pass without limits",
                "tidegate at t:1 answers again; its limits apply",
            ],
        )

    def test_success_resets_the_count(self):
        self.fail(2)
        self.breaker.record_success()
        self.fail(2)
        self.assertTrue(self.breaker.admits())


class QuestionTest(unittest.TestCase):
    def encode(self, target=b"/", headers=(), facts=None, **options):
        auth = ForwardAuth("http://t:1", **options)
        return auth.encode_question("GET", target, "192.0.2.1", list(headers), facts or {})

    def test_facts_replace_headers_of_the_client(self):
        headers = [(b"tidegate-fact-user-id", b"forged"), (b"tidegate-fact-tier", b"paid")]
        question = self.encode(headers=headers, facts={"user_id": "zoé", "plan": None})
        self.assertNotIn(b"forged", question)
        self.assertNotIn(b"tier", question)
        self.assertNotIn(b"plan", question)
        self.assertIn("\r\ntidegate-fact-user-id: zoé\r\n".encode(), question)

    def test_line_breaks_in_facts_are_bad_requests(self):
        for value in ("a\r\nx-api-key: b", "a\nb", "a\0b"):
            self.assertEqual(self.encode(facts={"user_id": value}).status, 400)

    def test_non_ascii_target_is_encoded(self):
        question = self.encode(target="/é?%zz=\"<".encode())
        self.assertIn(b"\r\nx-forwarded-uri: /%C3%A9?%zz=\"<\r\n", question)

    def test_dropped_headers_are_not_sent(self):
        headers = [(b"x-user", b"ana"), (b"x-other", b"kept")]
        question = self.encode(headers=headers, drop_headers=["X-User"])
        self.assertNotIn(b"ana", question)
        self.assertIn(b"\r\nx-other: kept\r\n", question)

    def test_too_long_heads_are_refused(self):
        self.assertEqual(self.encode(headers=[(b"x", b"a" * 32_000)]).status, 431)
        self.assertEqual(self.encode(headers=[(b"x", b"a")] * 97).status, 431)
        self.assertIsInstance(self.encode(headers=[(b"x", b"a")] * 90), bytes)

    def test_invalid_options_are_errors(self):
        for options in ({"url": "https://a"}, {"url": "http://a/b"}, {"on_fail": "open"}, {"deadline": 0}):
            with self.assertRaises(ValueError):
                ForwardAuth(**options)


class AnswerTest(unittest.TestCase):
    def test_answer_may_arrive_in_pieces(self):
        data = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\nA: b\r\n\r\nno"
        for end in range(len(data)):
            self.assertIsNone(parse_answer(data[:end]))
        headers = [(b"content-length", b"2"), (b"a", b"b")]
        self.assertEqual(parse_answer(data), (429, headers, b"no"))

    def test_malformed_answers_are_errors(self):
        for data in (
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab",
            b"SSH-2.0\r\ncontent-length: 0\r\n\r\n",
        ):
            with self.assertRaises(ValueError):
                parse_answer(data)

    def test_answer_without_decision_is_a_failure(self):
        for status in (200, 403, 404, 500, 503):
            with self.assertRaises(OSError):
                ForwardAuth.read_verdict(status, [], b"detail")
        self.assertEqual(ForwardAuth.read_verdict(400, [], b"").status, 400)

    def test_allowed_answer_yields_limit_headers_only(self):
        headers = [(b"x-ratelimit-decision", b"allow"), (b"x-ratelimit-limit", b"3")]
        headers += [(b"ratelimit", b"r"), (b"cache-control", b"no-store"), (b"date", b"d")]
        verdict = ForwardAuth.read_verdict(200, headers, b"")
        expected = [(b"x-ratelimit-limit", b"3"), (b"ratelimit", b"r")]
        self.assertEqual(verdict, Verdict(None, expected))


class AsgiTest(unittest.TestCase):
    def test_other_scopes_pass_unchanged(self):
        seen = []

        async def app(scope, receive, send):
            seen.append((scope, receive, send))

        # Port 1 of this machine: asking would fail.
        middleware = RateLimitMiddleware(app, "http://127.0.0.1:1", on_fail="deny")
        for kind in ("websocket", "lifespan"):
            scope = {"type": kind}
            asyncio.run(middleware(scope, "receive", "send"))
            self.assertEqual(seen.pop(), (scope, "receive", "send"))

    def test_cancelled_request_is_no_failure(self):
        async def run():
            asked = asyncio.Event()

            async def hang(reader, writer):
                asked.set()
                await reader.read()
                writer.close()

            server = await asyncio.start_server(hang, "127.0.0.1", 0)
            url = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
            middleware = RateLimitMiddleware(None, url, deadline=60.0)
            scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
            for _ in range(4):
                request = asyncio.ensure_future(middleware(scope, None, None))
                await asked.wait()
                asked.clear()
                request.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await request
            server.close()
            return middleware._auth.breaker.admits()

        with self.assertNoLogs("tidegate", logging.WARNING):
            self.assertTrue(asyncio.run(run()))


class WsgiTest(unittest.TestCase):
    def test_raw_target_is_preferred(self):
        environ = {"PATH_INFO": "/a/b", "QUERY_STRING": "c=d"}
        self.assertEqual(read_target({**environ, "REQUEST_URI": "/a%2Fb?c=d"}), b"/a%2Fb?c=d")
        self.assertEqual(read_target({**environ, "RAW_URI": "/a%2Fb?c=d"}), b"/a%2Fb?c=d")

    def test_decoded_path_is_encoded_again(self):
        path = "/50%/a b?é".encode().decode("latin-1")
        environ = {"SCRIPT_NAME": "/app", "PATH_INFO": path, "QUERY_STRING": "q=%20"}
        self.assertEqual(read_target(environ), b"/app/50%25/a%20b%3F%C3%A9?q=%20")
        self.assertEqual(read_target({}), b"/")

    def test_headers_get_their_names_back(self):
        environ = {"HTTP_X_API_KEY": "cl\xc3\xa9", "CONTENT_TYPE": "text/plain", "PATH_INFO": "/"}
        expected = [(b"x-api-key", "clé".encode()), (b"content-type", b"text/plain")]
        self.assertEqual(read_headers(environ), expected)


if __name__ == "__main__":
    unittest.main()
