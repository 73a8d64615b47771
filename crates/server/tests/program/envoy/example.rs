//! The example as it is written, between curl and nginx.

use serde_json::json;
use tidegate_testkit::nginx::Nginx;

use super::{API, envoy, tidegate};
use crate::support::{Folder, Server, curl, wait_for};

#[test]
fn requests_pass_up_to_the_limit_and_the_client_is_told_how_it_stands() {
    let (folder, api) = (Folder::new(), Nginx::start(API));
    let server = tidegate(&folder, &[("100/min", "3/30d")], &[]);
    let envoy = envoy(&server.grpc(), &api, &[]);
    for left in ["2", "1", "0"] {
        let passed = curl(&[&envoy.url("/")]);
        assert_eq!((passed.status, passed.body.as_str()), (200, "well"), "{passed:?}");
        let limit = r#"3, 3;w=2592000;name="per-ip""#;
        assert_eq!(passed.header("x-ratelimit-limit"), Some(limit));
        assert_eq!(passed.header("x-ratelimit-remaining"), Some(left));
        assert_eq!(passed.header("retry-after"), None);
    }
    let refused = curl(&[&envoy.url("/")]);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    let secs = |name| refused.header(name).unwrap().parse::<u64>().unwrap();
    assert!((1..=2_592_000).contains(&secs("retry-after")), "ours, on every version of Envoy");
    assert_eq!(secs("x-ratelimit-reset"), secs("retry-after"));
    assert_eq!(api.requests().len(), 3, "what was refused did not reach the API");
}

/// As `docs/envoy.md` tells it: the address is a pipe.
#[test]
fn envoy_asks_over_a_unix_socket() {
    let (folder, api) = (Folder::new(), Nginx::start(API));
    let rules =
        folder.write("rules.yaml", super::example("rules.yaml").replace("100/min", "1/30d"));
    let socket = folder.path("grpc.sock");
    let at = format!("unix:{}", socket.display());
    let server = Server::with_config(&rules, &["--grpc", &at]);
    assert_eq!(server.grpc(), at);
    let by_port = "socket_address: { address: 127.0.0.1, port_value: 8082 }";
    let by_file = format!("pipe: {{ path: {} }}", socket.display());
    let envoy = envoy("", &api, &[(by_port, &by_file)]);
    let status = || curl(&[&envoy.url("/")]).status;
    assert_eq!([status(), status()], [200, 429]);
    assert_eq!(envoy.count("ratelimit.error"), 0);
}

#[test]
fn envoys_own_retry_after_is_ours_where_we_send_none() {
    let (folder, api) = (Folder::new(), Nginx::start(API));
    let server = tidegate(&folder, &[("100/min", "1/30d")], &["--grpc-headers", "none"]);
    let own = "domain: edge\n                      enable_retry_after_header: true";
    let envoy = envoy(&server.grpc(), &api, &[("domain: edge", own)]);
    assert_eq!(curl(&[&envoy.url("/")]).header("retry-after"), None);
    let refused = curl(&[&envoy.url("/")]);
    assert_eq!(refused.header("retry-after"), refused.header("x-ratelimit-reset"), "{refused:?}");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() > 1);
    assert_eq!(refused.header("retry-after-ms"), None);
}

/// All rules or none, over descriptors: who is refused for one of them pays for none.
#[test]
fn a_client_that_one_descriptor_refuses_is_charged_for_none() {
    let (folder, api) = (Folder::new(), Nginx::start(API));
    let changes = [
        ("100/min", "6/30d"),
        ("20/s burst 60", "2/30d using fixed_window"),
        ("10/min", "1/30d using fixed_window"),
    ];
    let server = tidegate(&folder, &changes, &[]);
    let envoy = envoy(&server.grpc(), &api, &[]);
    let with_key = || curl(&["-H", "x-api-key: k", &envoy.url("/")]).status;
    assert_eq!([with_key(), with_key(), with_key(), with_key()], [200, 200, 429, 429]);
    let without = curl(&[&envoy.url("/")]);
    assert_eq!(without.header("x-ratelimit-remaining"), Some("3"), "two of six were charged");
    // The path and the method are facts.
    let post = |path| curl(&["-X", "POST", "-H", "x-api-key: other", &envoy.url(path)]).status;
    assert_eq!([post("/orders/1?a"), post("/x/../orders/2"), post("/other")], [200, 429, 200]);
}

/// Headers hold bytes, text in protobuf is UTF-8: a library that refuses the message would let it pass.
#[test]
fn a_header_that_is_not_text_is_no_way_round_the_limit() {
    let (folder, api) = (Folder::new(), Nginx::start(API));
    let server = tidegate(&folder, &[("20/s burst 60", "1/30d")], &[]);
    let envoy = envoy(&server.grpc(), &api, &[]);
    let key = folder.write("headers", b"x-api-key: \xff\xfe\xfa\n");
    let file = format!("@{}", key.display());
    let status = || curl(&["-H", &file, &envoy.url("/")]).status;
    assert_eq!([status(), status()], [200, 429]);
    assert_eq!(envoy.count("ratelimit.error"), 0);
    let long = format!("x-api-key: {}", "x".repeat(40_000));
    let long = folder.write("long", long);
    let file = format!("@{}", long.display());
    let status = || curl(&["-H", &file, &envoy.url("/")]).status;
    // The first is nginx's answer, which takes no header as long as that.
    assert_eq!([status(), status()], [400, 429], "nor is a long one");
    assert_eq!(envoy.count("ratelimit.error"), 0);
}

/// The call was refused as a whole, and Envoy let the request pass.
#[test]
fn a_header_that_is_missing_is_no_way_round_the_limit() {
    let (folder, api) = (Folder::new(), Nginx::start(API));
    let server = tidegate(&folder, &[("100/min", "2/30d")], &[]);
    let skipped = "- actions:
                            - request_headers: { header_name: x-tenant, descriptor_key: tenant, skip_if_absent: true }
                        - actions:
                            - remote_address: {}
                        # Without an API key";
    let address = "- actions:
                            - remote_address: {}
                        # Without an API key";
    let envoy = envoy(&server.grpc(), &api, &[(address, skipped)]);
    let status = || curl(&[&envoy.url("/")]).status;
    assert_eq!([status(), status(), status()], [200, 200, 429]);
    assert_eq!(curl(&["-H", "x-tenant: t", &envoy.url("/")]).status, 429);
    assert_eq!(envoy.count("ratelimit.error"), 0);
}

/// Each of the descriptors has the whole path: together more than calls were once allowed to have.
#[test]
fn a_long_path_in_several_descriptors_is_no_way_round_the_limit() {
    let (folder, api) = (Folder::new(), Nginx::start(API));
    let server = tidegate(&folder, &[("100/min", "1/30d")], &[]);
    let action = "- request_headers: { header_name: \":path\", descriptor_key: path }";
    let long = format!(
        "- remote_address: {{}}\n{}",
        format!("                        - actions:\n                            {action}\n")
            .repeat(5)
    );
    let envoy = envoy(&server.grpc(), &api, &[("- remote_address: {}", long.trim_end())]);
    let url =
        folder.write("long", format!("url = {}", envoy.url(&format!("/{}", "x".repeat(55_000)))));
    let status = || curl(&["-K", url.to_str().unwrap()]).status;
    // The first is nginx's answer, which takes no path as long as that.
    assert_eq!([status(), status()], [414, 429]);
    assert_eq!(envoy.count("ratelimit.error"), 0);
}

#[test]
fn what_is_known_after_the_answer_is_charged_past_the_limit_and_shuts_the_gate() {
    let (folder, api) = (Folder::new(), Nginx::start(API));
    let server = tidegate(&folder, &[("1000000/h", "50/30d")], &[]);
    let rewrite = (
        r#"- match: { prefix: "/export" }
                          route: { cluster: api }"#,
        r#"- match: { prefix: "/export" }
                          route: { cluster: api, prefix_rewrite: "/large" }"#,
    );
    let envoy = envoy(&server.grpc(), &api, &[rewrite]);
    let facts = json!({ "facts": { "domain": "edge", "budget": "export" } }).to_string();
    let charged = |left: u64| {
        wait_for("the charge", || {
            let told = server.client().post("/v1/peek", &facts).body;
            (told["remaining"] == left).then_some(())
        });
    };
    // 40 bytes each: the second goes past 50, and only the third is refused.
    assert_eq!(curl(&[&envoy.url("/export")]).status, 200);
    charged(10);
    assert_eq!(curl(&[&envoy.url("/export")]).status, 200, "the gate looks, it does not charge");
    charged(0);
    assert_eq!(curl(&[&envoy.url("/export")]).status, 429);
}
