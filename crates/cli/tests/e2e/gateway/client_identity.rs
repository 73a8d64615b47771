//! Client identity: which counter a request uses, and that a forged identity gets no fresh one.

use tidegate_testkit::nginx::NginxServer;

use crate::support::{HttpTestClient, ServerProcess, TestFolder};

pub(super) fn start_gateway(
    nginx: &NginxServer,
    folder: &TestFolder,
    document: &str,
) -> ServerProcess {
    let rules = folder.write("rules.yaml", document);
    ServerProcess::start_gateway_with_config(&rules, &["--upstream", &nginx.url()])
}

/// Sends `count` requests and returns how many were admitted.
pub(super) fn count_admitted(
    client: &mut HttpTestClient,
    count: usize,
    path: &str,
    headers: &[(&str, &str)],
) -> usize {
    (0..count).filter(|_| client.get_with(path, headers).status == 200).count()
}

#[test]
fn api_keys_are_read_from_every_source() {
    let nginx = NginxServer::start("return 200 ok;");
    for (source, path, name, prefix) in [
        ("header: x-api-key", "/", "x-api-key", ""),
        ("query: key", "/?a=b&key=KEY&c=d", "x-none", ""),
        ("bearer: true", "/", "authorization", "Bearer "),
        ("cookie: key", "/", "cookie", "a=b; key="),
    ] {
        let folder = TestFolder::new();
        let document = format!(
            "identity: {{ api_key: {{ {source} }}, tier: {{ subject: api_key, default: free }} }}\n\
             subjects: [{{ api_key: paid-1, tier: paid }}]\n\
             rules:\n  - {{ id: free, match: {{ tier: free }}, key_by: api_key, limit: 2/d }}\n  \
             - {{ id: paid, match: {{ tier: paid }}, key_by: api_key, limit: 5/d }}\n"
        );
        let server = start_gateway(&nginx, &folder, &document);
        let mut client = server.gateway_client();
        let mut admitted = |key: &str| {
            let value = format!("{prefix}{key}");
            count_admitted(&mut client, 7, &path.replace("KEY", key), &[(name, &value)])
        };
        let counts =
            [admitted("free-1"), admitted("free-2"), admitted("paid-1"), admitted("free-1")];
        assert_eq!(counts, [2, 2, 5, 0], "{source}");
    }
}

#[test]
fn unknown_keys_count_as_their_ip() {
    let nginx = NginxServer::start("return 200 ok;");
    let folder = TestFolder::new();
    let server = start_gateway(
        &nginx,
        &folder,
        "identity: { api_key: { header: x-api-key, unknown: ip } }\n\
         subjects: [{ api_key: known, tier: paid }]\n\
         rules: [{ id: a, key_by: api_key, limit: 3/d }]",
    );
    let mut client = server.gateway_client();
    let random = |n: usize| format!("random-{n}");
    let invented: usize =
        (0..50).map(|n| count_admitted(&mut client, 1, "/", &[("x-api-key", &random(n))])).sum();
    assert_eq!(invented, 3);
    assert_eq!(count_admitted(&mut client, 2, "/", &[]), 0, "without a key, the address counts");
    assert_eq!(count_admitted(&mut client, 5, "/", &[("x-api-key", "known")]), 3);
    assert_eq!(nginx.requests().len(), 6);
    let twice = client.get_with("/", &[("x-api-key", "known"), ("x-api-key", "other")]);
    assert_eq!(twice.status, 400);
}

#[test]
fn forged_forwarding_headers_share_one_counter() {
    let nginx = NginxServer::start("return 200 ok;");
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "3/d by ip"]);
    let mut client = server.gateway_client();
    let mut all = 0;
    for n in 0..20 {
        let ip = format!("198.51.100.{n}");
        let forwarded = format!("for={ip}");
        for (name, value) in [
            ("x-forwarded-for", ip.as_str()),
            ("x-real-ip", &ip),
            ("forwarded", &forwarded),
            ("true-client-ip", &ip),
            ("cf-connecting-ip", &ip),
            ("x-client-ip", &ip),
        ] {
            all += count_admitted(&mut client, 1, "/", &[(name, value)]);
        }
    }
    assert_eq!(all, 3);
    let lines = nginx.requests();
    assert!(lines.iter().all(|line| line.ends_with("for=127.0.0.1 ip=127.0.0.1")), "{lines:?}");
}

#[test]
fn forwarded_chain_stops_at_untrusted_address() {
    let nginx = NginxServer::start("return 200 ok;");
    let folder = TestFolder::new();
    let server = start_gateway(
        &nginx,
        &folder,
        "identity: { ip: { trusted_proxies: [127.0.0.0/8, 10.0.0.0/8] } }\n\
         rules: [{ id: a, key_by: ip, limit: 2/d }]",
    );
    let mut client = server.gateway_client();
    let mut admitted =
        |value: &str| count_admitted(&mut client, 1, "/", &[("x-forwarded-for", value)]);
    let counts =
        ["1.1.1.1, 203.0.113.7", "2.2.2.2, 203.0.113.7, 10.0.0.1", "203.0.113.7, 10.1.2.3"]
            .map(&mut admitted);
    assert_eq!(counts, [1, 1, 0], "entries before the client's own address are ignored");
    assert_eq!(admitted("203.0.113.8"), 1);
    let lines = nginx.requests();
    assert!(lines[0].ends_with("for=1.1.1.1, 203.0.113.7, 127.0.0.1 ip=203.0.113.7"), "{lines:?}");
}
