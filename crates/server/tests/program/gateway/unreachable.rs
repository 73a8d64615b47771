//! `gateway:` as a mapping: what a request costs that no upstream got, and which headers clients
//! may send.

use tidegate_testkit::port::Port;

use crate::support::{Folder, Server, Upstream, run, text};

/// One request a day.
fn document(gateway: &str) -> String {
    format!("server: {{ gateway: {gateway} }}\nrules: [{{ id: r, key_by: global, limit: 1/d }}]\n")
}

#[test]
fn a_charge_is_given_back_where_no_upstream_is_reached_and_only_if_that_is_set() {
    let (folder, closed) = (Folder::new(), Port::take());
    let url = format!("http://{}", closed.address());
    for (refund, statuses) in [("true", [502, 502, 502]), ("false", [502, 429, 429])] {
        let gateway = format!("{{ listen: 127.0.0.1:0, refund_unreachable: {refund} }}");
        let rules = folder.write("rules.yaml", document(&gateway));
        let server = Server::with_config(&rules, &["--upstream", &url]);
        let mut client = server.visitor();
        let answers = [(); 3].map(|()| client.get("/"));
        for answer in &answers {
            assert!(answer.head.contains("\nx-request-id: "), "{answer:?}");
            assert!(answer.head.contains("\nx-ratelimit-limit: 1\r"), "{answer:?}");
        }
        assert_eq!(answers.map(|answer| answer.status), statuses, "refund_unreachable: {refund}");
    }
}

#[test]
fn headers_that_clients_may_send_are_named_in_the_document() {
    let (folder, upstream) = (Folder::new(), Upstream::start());
    let gateway = "{ listen: 127.0.0.1:0, pass_headers: [X-HTTP-Method-Override] }";
    let rules = folder.write("rules.yaml", document(gateway));
    let server = Server::with_config(&rules, &["--upstream", &upstream.url()]);
    let claims = [("X-HTTP-Method-Override", "PUT"), ("X-HTTP-Method", "PUT")];
    assert_eq!(server.visitor().get_with("/", &claims).status, 200);
    let seen = upstream.request();
    assert_eq!(seen.header("x-http-method-override"), Some("PUT"));
    assert_eq!(seen.header("x-http-method"), None);
}

#[test]
fn a_mistake_in_the_mapping_says_what_to_write() {
    let folder = Folder::new();
    for (gateway, hint) in [
        ("{ pass_headers: [x-forwarded-for] }", "trusted_proxies"),
        ("{ pass_headers: ['no name'] }", "x-http-method-override"),
        ("{ refund: true }", "refund_unreachable"),
        ("{ refund_unreachable: 1 }", "`true` or `false`"),
        ("[127.0.0.1:0]", "mapping"),
    ] {
        let rules = folder.write("rules.yaml", document(gateway));
        let output = run(&["config", "check", rules.to_str().unwrap()]);
        let said = text(&[output.stdout, output.stderr].concat());
        assert_eq!(output.status.code(), Some(1), "{gateway}: {said}");
        assert!(said.contains(hint), "{gateway}: {said}");
    }
}
