//! The example configuration unchanged, between curl and nginx.

use serde_json::json;
use tidegate_testkit::nginx::NginxServer;

use super::{API_CONFIG, start_envoy, start_tidegate};
use crate::support::{ServerProcess, TestFolder, run_curl, wait_for};

#[test]
fn example_limits_and_sends_headers() {
    let (folder, api) = (TestFolder::new(), NginxServer::start(API_CONFIG));
    let server = start_tidegate(&folder, &[("100/min", "3/30d")], &[]);
    let envoy = start_envoy(&server.grpc_address(), &api, &[]);
    for left in ["2", "1", "0"] {
        let passed = run_curl(&[&envoy.url("/")]);
        assert_eq!((passed.status, passed.body.as_str()), (200, "ok"), "{passed:?}");
        let limit = r#"3, 3;w=2592000;name="per-ip""#;
        assert_eq!(passed.header("x-ratelimit-limit"), Some(limit));
        assert_eq!(passed.header("x-ratelimit-remaining"), Some(left));
        assert_eq!(passed.header("retry-after"), None);
    }
    let refused = run_curl(&[&envoy.url("/")]);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    let secs = |name| refused.header(name).unwrap().parse::<u64>().unwrap();
    let range = 1..=2_592_000;
    assert!(range.contains(&secs("retry-after")), "Tidegate sets it, whatever Envoy's version");
    assert_eq!(secs("x-ratelimit-reset"), secs("retry-after"));
    assert_eq!(api.requests().len(), 3, "refused requests do not reach the API");
}

/// As `docs/envoy.md` describes it: the address is a pipe.
#[test]
fn envoy_connects_over_unix_socket() {
    let (folder, api) = (TestFolder::new(), NginxServer::start(API_CONFIG));
    let rules =
        folder.write("rules.yaml", super::read_example("rules.yaml").replace("100/min", "1/30d"));
    let socket = folder.path("grpc.sock");
    let at = format!("unix:{}", socket.display());
    let server = ServerProcess::with_config(&rules, &["--grpc", &at]);
    assert_eq!(server.grpc_address(), at);
    let by_port = "socket_address: { address: 127.0.0.1, port_value: 8082 }";
    let by_file = format!("pipe: {{ path: {} }}", socket.display());
    let envoy = start_envoy("", &api, &[(by_port, &by_file)]);
    let status = || run_curl(&[&envoy.url("/")]).status;
    assert_eq!([status(), status()], [200, 429]);
    assert_eq!(envoy.counter_value("ratelimit.error"), 0);
}

#[test]
fn envoy_derives_retry_after_from_reset() {
    let (folder, api) = (TestFolder::new(), NginxServer::start(API_CONFIG));
    let server = start_tidegate(&folder, &[("100/min", "1/30d")], &["--grpc-headers", "none"]);
    let with_retry_after = "domain: edge\n                      enable_retry_after_header: true";
    let envoy = start_envoy(&server.grpc_address(), &api, &[("domain: edge", with_retry_after)]);
    assert_eq!(run_curl(&[&envoy.url("/")]).header("retry-after"), None);
    let refused = run_curl(&[&envoy.url("/")]);
    assert_eq!(refused.header("retry-after"), refused.header("x-ratelimit-reset"), "{refused:?}");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() > 1);
    assert_eq!(refused.header("retry-after-ms"), None);
}

/// All-or-none applies to descriptors too: if one is refused, none is charged.
#[test]
fn refused_descriptor_charges_no_other() {
    let (folder, api) = (TestFolder::new(), NginxServer::start(API_CONFIG));
    let changes = [
        ("100/min", "6/30d"),
        ("20/s burst 60", "2/30d using fixed_window"),
        ("10/min", "1/30d using fixed_window"),
    ];
    let server = start_tidegate(&folder, &changes, &[]);
    let envoy = start_envoy(&server.grpc_address(), &api, &[]);
    let with_key = || run_curl(&["-H", "x-api-key: k", &envoy.url("/")]).status;
    assert_eq!([with_key(), with_key(), with_key(), with_key()], [200, 200, 429, 429]);
    let without = run_curl(&[&envoy.url("/")]);
    assert_eq!(without.header("x-ratelimit-remaining"), Some("3"), "two of six were used");
    // Path and method are facts.
    let post = |path| run_curl(&["-X", "POST", "-H", "x-api-key: other", &envoy.url(path)]).status;
    assert_eq!([post("/orders/1?a"), post("/x/../orders/2"), post("/other")], [200, 429, 200]);
}

/// Headers hold bytes, but protobuf text is UTF-8. If the server rejected the message, Envoy would
/// let the request pass.
#[test]
fn non_utf8_header_cannot_bypass_limit() {
    let (folder, api) = (TestFolder::new(), NginxServer::start(API_CONFIG));
    let server = start_tidegate(&folder, &[("20/s burst 60", "1/30d")], &[]);
    let envoy = start_envoy(&server.grpc_address(), &api, &[]);
    let key = folder.write("headers", b"x-api-key: \xff\xfe\xfa\n");
    let file = format!("@{}", key.display());
    let status = || run_curl(&["-H", &file, &envoy.url("/")]).status;
    assert_eq!([status(), status()], [200, 429]);
    assert_eq!(envoy.counter_value("ratelimit.error"), 0);
    let long = format!("x-api-key: {}", "x".repeat(40_000));
    let long = folder.write("long", long);
    let file = format!("@{}", long.display());
    let status = || run_curl(&["-H", &file, &envoy.url("/")]).status;
    // The first response comes from nginx, which rejects such a long header.
    assert_eq!([status(), status()], [400, 429], "a long header cannot bypass it either");
    assert_eq!(envoy.counter_value("ratelimit.error"), 0);
}

/// Regression test: the server rejected the whole call, and Envoy let the request pass.
#[test]
fn missing_header_cannot_bypass_limit() {
    let (folder, api) = (TestFolder::new(), NginxServer::start(API_CONFIG));
    let server = start_tidegate(&folder, &[("100/min", "2/30d")], &[]);
    let skipped = "- actions:
                            - request_headers: { header_name: x-tenant, descriptor_key: tenant, skip_if_absent: true }
                        - actions:
                            - remote_address: {}
                        # Envoy leaves out";
    let address = "- actions:
                            - remote_address: {}
                        # Envoy leaves out";
    let envoy = start_envoy(&server.grpc_address(), &api, &[(address, skipped)]);
    let status = || run_curl(&[&envoy.url("/")]).status;
    assert_eq!([status(), status(), status()], [200, 200, 429]);
    assert_eq!(run_curl(&["-H", "x-tenant: t", &envoy.url("/")]).status, 429);
    assert_eq!(envoy.counter_value("ratelimit.error"), 0);
}

/// Each descriptor contains the whole path; together they exceed the former size limit of calls.
#[test]
fn long_path_cannot_bypass_limit() {
    let (folder, api) = (TestFolder::new(), NginxServer::start(API_CONFIG));
    let server = start_tidegate(&folder, &[("100/min", "1/30d")], &[]);
    let action = "- request_headers: { header_name: \":path\", descriptor_key: path }";
    let long = format!(
        "- remote_address: {{}}\n{}",
        format!("                        - actions:\n                            {action}\n")
            .repeat(5)
    );
    let envoy =
        start_envoy(&server.grpc_address(), &api, &[("- remote_address: {}", long.trim_end())]);
    let url =
        folder.write("long", format!("url = {}", envoy.url(&format!("/{}", "x".repeat(55_000)))));
    let status = || run_curl(&["-K", url.to_str().unwrap()]).status;
    // The first response comes from nginx, which rejects such a long path.
    assert_eq!([status(), status()], [414, 429]);
    assert_eq!(envoy.counter_value("ratelimit.error"), 0);
}

#[test]
fn response_cost_is_charged_past_the_limit() {
    let (folder, api) = (TestFolder::new(), NginxServer::start(API_CONFIG));
    let server = start_tidegate(&folder, &[("1000000/h", "50/30d")], &[]);
    let rewrite = (
        r#"- match: { prefix: "/export" }
                          route: { cluster: api }"#,
        r#"- match: { prefix: "/export" }
                          route: { cluster: api, prefix_rewrite: "/large" }"#,
    );
    let envoy = start_envoy(&server.grpc_address(), &api, &[rewrite]);
    let facts = json!({ "facts": { "domain": "edge", "budget": "export" } }).to_string();
    let wait_for_remaining = |remaining: u64| {
        wait_for("the charge", || {
            let body = server.client().post("/v1/peek", &facts).body;
            (body["remaining"] == remaining).then_some(())
        });
    };
    // 40 bytes each: the second exceeds the 50, and only the third is refused.
    assert_eq!(run_curl(&[&envoy.url("/export")]).status, 200);
    wait_for_remaining(10);
    assert_eq!(
        run_curl(&[&envoy.url("/export")]).status,
        200,
        "the check before the response charges nothing"
    );
    wait_for_remaining(0);
    assert_eq!(run_curl(&[&envoy.url("/export")]).status, 429);
}
