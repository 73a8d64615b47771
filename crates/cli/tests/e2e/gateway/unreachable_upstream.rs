//! `gateway:` as a mapping: the refund for requests that reached no upstream, and the client
//! headers that are passed on.

use tidegate_testkit::port::ReservedPort;

use crate::support::{RecordingUpstream, ServerProcess, TestFolder, run_tidegate, utf8_text};

/// One request a day.
fn document_with_gateway(gateway: &str) -> String {
    format!("server: {{ gateway: {gateway} }}\nrules: [{{ id: r, key_by: global, limit: 1/d }}]\n")
}

#[test]
fn refund_unreachable_refunds_failed_requests() {
    let (folder, closed) = (TestFolder::new(), ReservedPort::reserve());
    let url = format!("http://{}", closed.address());
    for (refund, statuses) in [("true", [502, 502, 502]), ("false", [502, 429, 429])] {
        let gateway = format!("{{ listen: 127.0.0.1:0, refund_unreachable: {refund} }}");
        let rules = folder.write("rules.yaml", document_with_gateway(&gateway));
        let server = ServerProcess::with_config(&rules, &["--upstream", &url]);
        let mut client = server.gateway_client();
        let responses = [(); 3].map(|()| client.get("/"));
        for response in &responses {
            assert!(response.head.contains("\nx-request-id: "), "{response:?}");
            assert!(response.head.contains("\nx-ratelimit-limit: 1\r"), "{response:?}");
        }
        let actual = responses.map(|response| response.status);
        assert_eq!(actual, statuses, "refund_unreachable: {refund}");
    }
}

#[test]
fn pass_headers_allows_listed_client_headers() {
    let (folder, upstream) = (TestFolder::new(), RecordingUpstream::start());
    let gateway = "{ listen: 127.0.0.1:0, pass_headers: [X-HTTP-Method-Override] }";
    let rules = folder.write("rules.yaml", document_with_gateway(gateway));
    let server = ServerProcess::with_config(&rules, &["--upstream", &upstream.url()]);
    let claims = [("X-HTTP-Method-Override", "PUT"), ("X-HTTP-Method", "PUT")];
    assert_eq!(server.gateway_client().get_with("/", &claims).status, 200);
    let seen = upstream.next_request();
    assert_eq!(seen.header("x-http-method-override"), Some("PUT"));
    assert_eq!(seen.header("x-http-method"), None);
}

#[test]
fn invalid_gateway_mapping_suggests_a_fix() {
    let folder = TestFolder::new();
    for (gateway, hint) in [
        ("{ pass_headers: [x-forwarded-for] }", "trusted_proxies"),
        ("{ pass_headers: ['no name'] }", "x-http-method-override"),
        ("{ refund: true }", "refund_unreachable"),
        ("{ refund_unreachable: 1 }", "`true` or `false`"),
        ("[127.0.0.1:0]", "mapping"),
    ] {
        let rules = folder.write("rules.yaml", document_with_gateway(gateway));
        let output = run_tidegate(&["config", "check", rules.to_str().unwrap()]);
        let output_text = utf8_text(&[output.stdout, output.stderr].concat());
        assert_eq!(output.status.code(), Some(1), "{gateway}: {output_text}");
        assert!(output_text.contains(hint), "{gateway}: {output_text}");
    }
}
