//! TLS connections to upstreams.

use tidegate_testkit::nginx::NginxServer;

use crate::support::external_programs::{LoadReport, run_h2load};
use crate::support::{ServerProcess, TestCertificateAuthority, TestFolder, run_curl};

fn start_gateway(folder: &TestFolder, nginx: &NginxServer, ca: &str) -> ServerProcess {
    let document = format!(
        "server:\n  upstreams:\n    api: {{ servers: [\"https://localhost:{}\"], ca_file: {ca} }}\n\
         rules: [{{ id: a, key_by: ip, limit: 1000000/s }}]",
        nginx.address().port()
    );
    ServerProcess::start_gateway_with_config(&folder.write("rules.yaml", document), &[])
}

#[test]
fn upstream_certificate_is_verified() {
    let folder = TestFolder::new();
    let [good, wrong] =
        ["good", "wrong"].map(|name| TestCertificateAuthority::create(&folder.path("."), name));
    for listen in ["ssl", "ssl http2"] {
        let nginx = good.start_nginx(listen, "return 200 $server_protocol;");
        let server = start_gateway(&folder, &nginx, "good.pem");
        let fetched = run_curl(&[&format!("http://{}/", server.gateway)]);
        let version = if listen == "ssl" { "HTTP/1.1" } else { "HTTP/2.0" };
        assert_eq!((fetched.status, fetched.body.as_str()), (200, version), "{}", server.log());
        let server = start_gateway(&folder, &nginx, "wrong.pem");
        let fetched = run_curl(&[&format!("http://{}/", server.gateway)]);
        assert_eq!(fetched.status, 502, "{fetched:?}");
        server.wait_for_log("UnknownIssuer");
    }
    drop(wrong);
}

#[test]
fn upstream_goaway_loses_no_request() {
    let folder = TestFolder::new();
    let authority = TestCertificateAuthority::create(&folder.path("."), "good");
    let body = folder.write("body", "x".repeat(10_000));
    // nginx accepts so few requests per connection that most concurrent requests are retried.
    for requests_per_connection in [50, 2] {
        let directives = format!("keepalive_requests {requests_per_connection}; return 200 ok;");
        let nginx = authority.start_nginx("ssl http2", &directives);
        let server = start_gateway(&folder, &nginx, "good.pem");
        let url = format!("http://{}/", server.gateway);
        for body in [&[][..], &["-d", body.to_str().unwrap()]] {
            let load = run_h2load(&[&["-n", "2000", "-c", "20", "--h1", &url], body].concat());
            let expected =
                LoadReport { done: 2000, errors: 0, passed: 2000, refused: 0, failed: 0 };
            assert_eq!(load, expected, "{body:?} {}", server.log());
        }
    }
}
