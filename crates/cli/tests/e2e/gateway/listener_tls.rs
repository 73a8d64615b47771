//! TLS on the gateway's listener, with certificates that are replaced at run time.

use tidegate_testkit::nginx::NginxServer;

use crate::support::{ServerProcess, TestCertificateAuthority, TestFolder, run_curl, wait_for};

/// Whether a client that trusts this authority accepts the certificate of a new connection.
fn is_trusted(server: &ServerProcess, authority: &TestCertificateAuthority, version: &str) -> bool {
    let (_, port) = server.gateway.split_once(':').unwrap();
    let (url, ca) = (format!("https://localhost:{port}/"), authority.certificate_path());
    let fetched = run_curl(&["--cacert", ca.to_str().unwrap(), version, &url]);
    let expected = if version == "--http2" { "2" } else { "1.1" };
    match fetched.exit_code {
        // curl's exit code for an untrusted certificate.
        60 => false,
        _ => {
            assert_eq!((fetched.exit_code, fetched.status), (0, 200), "{fetched:?}");
            assert_eq!((fetched.version.as_str(), fetched.body.as_str()), (expected, "https"));
            true
        }
    }
}

#[test]
fn certificate_reload_rejects_invalid_files() {
    let nginx = NginxServer::start("return 200 $http_x_forwarded_proto;");
    let folder = TestFolder::new();
    let [first, second] =
        ["first", "second"].map(|name| TestCertificateAuthority::create(&folder.path("."), name));
    let (certificate, key) = first.issue_certificate();
    let (certificate, key) = (folder.write("cert.pem", certificate), folder.write("key.pem", key));
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server =
        ServerProcess::start_gateway(&nginx.url(), &[&files[..], &["--limit", "1000/s"]].concat());
    for version in ["--http1.1", "--http2"] {
        assert!(is_trusted(&server, &first, version));
        assert!(!is_trusted(&server, &second, version));
    }
    let (certificate, key) = second.issue_certificate();
    folder.replace_atomically("cert.pem", certificate);
    folder.replace_atomically("key.pem", key);
    wait_for("the new certificate", || is_trusted(&server, &second, "--http2").then_some(()));
    assert!(!is_trusted(&server, &first, "--http1.1"));
    server.wait_for_log("certificate replaced");
    for broken in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        let before = server.log().matches("certificate not replaced").count();
        folder.replace_atomically("cert.pem", broken);
        wait_for("the refusal in the log", || {
            (server.log().matches("certificate not replaced").count() > before).then_some(())
        });
        assert!(is_trusted(&server, &second, "--http1.1"), "{broken}");
    }
    let (certificate, key) = first.issue_certificate();
    folder.replace_atomically("key.pem", key);
    folder.replace_atomically("cert.pem", certificate);
    wait_for("the next certificate", || is_trusted(&server, &first, "--http1.1").then_some(()));
}

#[test]
fn plaintext_on_tls_listener_is_closed() {
    let folder = TestFolder::new();
    let authority = TestCertificateAuthority::create(&folder.path("."), "ca");
    let (certificate, key) = authority.issue_certificate();
    let (certificate, key) = (folder.write("cert.pem", certificate), folder.write("key.pem", key));
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server = ServerProcess::start_gateway(
        "http://127.0.0.1:9",
        &[&files[..], &["--limit", "5/s"]].concat(),
    );
    let received =
        server.gateway_client().send_and_read_to_end(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(!received.contains("HTTP/1.1"), "{received}");
}
