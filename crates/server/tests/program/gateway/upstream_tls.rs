//! Upstreams that are reached over TLS.

use tidegate_testkit::nginx::Nginx;

use crate::support::programs::{Load, h2load};
use crate::support::{Authority, Folder, Server, curl};

fn start(folder: &Folder, nginx: &Nginx, ca: &str) -> Server {
    let document = format!(
        "server:\n  upstreams:\n    api: {{ servers: [\"https://localhost:{}\"], ca_file: {ca} }}\n\
         rules: [{{ id: a, key_by: ip, limit: 1000000/s }}]",
        nginx.address().port()
    );
    Server::gateway_with(&folder.write("rules.yaml", document), &[])
}

#[test]
fn an_upstream_over_tls_is_believed_only_with_its_own_authority() {
    let folder = Folder::new();
    let [good, wrong] = ["good", "wrong"].map(|name| Authority::make(&folder.path("."), name));
    for listen in ["ssl", "ssl http2"] {
        let nginx = good.nginx(listen, "return 200 $server_protocol;");
        let server = start(&folder, &nginx, "good.pem");
        let fetched = curl(&[&format!("http://{}/", server.gateway)]);
        let version = if listen == "ssl" { "HTTP/1.1" } else { "HTTP/2.0" };
        assert_eq!((fetched.status, fetched.body.as_str()), (200, version), "{}", server.log());
        let server = start(&folder, &nginx, "wrong.pem");
        let fetched = curl(&[&format!("http://{}/", server.gateway)]);
        assert_eq!(fetched.status, 502, "{fetched:?}");
        server.wait_log("UnknownIssuer");
    }
    drop(wrong);
}

#[test]
fn an_upstream_that_says_go_away_costs_no_request() {
    let folder = Folder::new();
    let authority = Authority::make(&folder.path("."), "good");
    // Of each connection nginx takes so many requests and then sends GOAWAY.
    let nginx = authority.nginx("ssl http2", "keepalive_requests 50; return 200 well;");
    let server = start(&folder, &nginx, "good.pem");
    let url = format!("http://{}/", server.gateway);
    let body = folder.write("body", "x".repeat(10_000));
    for body in [&[][..], &["-d", body.to_str().unwrap()]] {
        let load = h2load(&[&["-n", "3000", "-c", "20", "--h1", &url], body].concat());
        let expected = Load { done: 3000, errors: 0, passed: 3000, refused: 0, failed: 0 };
        assert_eq!(load, expected, "{body:?} {}", server.log());
    }
}
