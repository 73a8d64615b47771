//! First steps with the gateway: limit headers, refusals, and mistakes in its setup.

use std::net::TcpListener;

use serde_json::Value;
use tidegate_testkit::nginx::NginxServer;
use tidegate_testkit::port::ReservedPort;

use crate::support::{
    HttpTestClient, RecordingUpstream, ServerProcess, TestFolder, run_curl, run_tidegate,
    utf8_text, wait_for,
};

#[test]
fn headers_count_down_until_refusal() {
    let nginx = NginxServer::start("return 200 \"ok\\n\";");
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "5/min by ip"]);
    let lines = format!(
        "listening gateway {}\nlistening http {}\nlistening resp {}\n",
        server.gateway, server.address, server.resp
    );
    assert_eq!(server.stdout(), lines);
    let url = format!("http://{}/hello", server.gateway);
    for left in ["4", "3", "2", "1", "0"] {
        let fetched = run_curl(&[&url]);
        assert_eq!((fetched.status, fetched.body.as_str()), (200, "ok\n"), "{fetched:?}");
        assert_eq!(fetched.header("x-ratelimit-limit"), Some("5"));
        assert_eq!(fetched.header("x-ratelimit-remaining"), Some(left));
    }
    let refused = run_curl(&[&url]);
    assert_eq!(refused.status, 429);
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=12).contains(&after), "{refused:?}");
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert_eq!(refused.header("content-type"), Some("application/json"));
    let body: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(body["error"], "rate_limit_exceeded");
    assert_eq!((&body["limit"], &body["retry_after"]), (&5.into(), &after.into()));
    let refused = run_curl(&[&url, "-H", "Accept: application/problem+json"]);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    let body: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(body["status"], 429, "{body}");
    let lines = nginx.requests();
    assert_eq!(lines.len(), 5, "{lines:?}");
    let expected = format!("GET /hello HTTP/1.1 200 host={} for=127.0.0.1", server.gateway);
    assert!(lines[0].starts_with(&expected), "{lines:?}");
}

#[test]
fn upstream_limit_headers_are_replaced() {
    let nginx = NginxServer::start(
        "add_header X-RateLimit-Limit 99; add_header RateLimit '\"x\";r=1'; \
         add_header Retry-After 7; return 200 ok;",
    );
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "5/min by ip"]);
    let fetched = run_curl(&[&format!("http://{}/", server.gateway)]);
    for name in ["x-ratelimit-limit:", "ratelimit:", "x-ratelimit-remaining:"] {
        let lines = fetched.head.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(lines, 1, "{name} {fetched:?}");
    }
    assert_eq!(fetched.header("x-ratelimit-limit"), Some("5"));
}

#[test]
fn bodiless_responses_are_forwarded_unchanged() {
    let nginx = NginxServer::start(
        "location /none { return 204; } location /moved { return 301 /x; } \
         location / { return 200 twelve-bytes; }",
    );
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "100/s by ip"]);
    let at = |path: &str| format!("http://{}{path}", server.gateway);
    let head = run_curl(&["-I", &at("/")]);
    assert_eq!((head.status, head.header("content-length")), (200, Some("12")), "{head:?}");
    let none = run_curl(&[&at("/none")]);
    assert_eq!((none.status, none.body.as_str()), (204, ""), "{none:?}");
    assert_eq!(run_curl(&[&at("/moved")]).status, 301);
    assert_eq!(run_curl(&["-X", "OPTIONS", &at("/")]).status, 200);
    let both = run_curl(&["--http2-prior-knowledge", &at("/")]);
    assert_eq!((both.version.as_str(), both.body.as_str()), ("2", "twelve-bytes"), "{both:?}");
}

#[test]
fn unreachable_upstream_returns_502() {
    let unused = ReservedPort::reserve();
    let upstream = format!("http://{}", unused.address());
    let server = ServerProcess::start_gateway(&upstream, &["--limit", "5/min"]);
    let fetched = run_curl(&[&format!("http://{}/", server.gateway)]);
    assert_eq!(fetched.status, 502, "{fetched:?}");
    assert!(!fetched.body.contains(&unused.number().to_string()), "no internals: {fetched:?}");
    server.wait_for_log(&upstream);
}

#[test]
fn unreachable_upstream_is_logged_at_startup() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for upstream in [format!("http://{unused}"), "http://no-such-host.invalid:80".to_owned()] {
        let server = ServerProcess::start_gateway(&upstream, &["--limit", "5/min by ip"]);
        server.wait_for_log("upstream server unreachable");
        server.wait_for_log(&upstream);
    }
}

/// Behind a proxy that is not trusted, all clients share one counter.
#[test]
fn untrusted_proxy_is_reported_until_trusted() {
    let folder = TestFolder::new();
    let rules = "rules: [{ id: a, limit: 5000/min }]";
    let file = folder.write("rules.yaml", rules);
    let upstream = RecordingUpstream::start();
    let args = ["--upstream", &upstream.url(), "--admin", "127.0.0.1:0"];
    let server = ServerProcess::start_gateway_with_config(&file, &args);
    let mut client = server.gateway_client();
    for number in 0..20 {
        let forwarded = format!("203.0.113.{number}");
        assert_eq!(client.get_with("/", &[("x-forwarded-for", &forwarded)]).status, 200);
    }
    server.wait_for_log("most requests come from 127.0.0.1 with forwarding headers");
    let warnings = || {
        let status = HttpTestClient::connect(&server.admin_address()).get("/v1/status").body;
        status["process"]["warnings"].to_string()
    };
    assert!(warnings().contains("trusted_proxies: [127.0.0.1/32]"), "{}", warnings());
    let trusts = "identity: { ip: { trusted_proxies: [127.0.0.1/32] } }";
    folder.write("rules.yaml", format!("{trusts}\n{rules}"));
    wait_for("the warning to disappear", || (warnings() == "null").then_some(()));
    assert_eq!(server.log().matches("most requests come from").count(), 1);
}

#[test]
fn invalid_gateway_flags_are_rejected() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let upstream = ["--upstream", "http://127.0.0.1:3000"];
    for (args, code, words) in [
        (&["--gateway", "127.0.0.1:0"][..], 2, "write: --upstream http://127.0.0.1:3000"),
        (&["--gateway", &taken, upstream[0], upstream[1]], 3, "the port is taken"),
        (&["--upstream", "127.0.0.1:3000"], 2, "it must begin with http://, https:// or h2c://"),
        (&["--upstream", "http://a/path"], 2, "it must not have a path"),
        (&["--tls-cert", "a.pem", upstream[0], upstream[1]], 2, "--tls-key is missing"),
        (
            &["--tls-cert", "none.pem", "--tls-key", "none.pem", upstream[0], upstream[1]],
            3,
            "cannot read none.pem for --tls-cert",
        ),
        (&["--http", "off", "--resp", "off", "--limit", "1/s"], 2, "all listeners are off"),
    ] {
        let args = [&["serve", "--http", "127.0.0.1:0"], args].concat();
        let args = if args.contains(&"off") {
            ["serve"].iter().chain(&args[3..]).copied().collect()
        } else {
            args
        };
        let output = run_tidegate(&args);
        let errors = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(words), "{args:?}: {errors}");
    }
}
