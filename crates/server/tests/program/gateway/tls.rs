//! TLS on the listener, with certificates that are replaced while it runs.

use tidegate_testkit::nginx::Nginx;

use crate::support::{Authority, Folder, Server, curl, wait_for};

/// Whether a new connection is believed by whoever believes this authority.
fn believed(server: &Server, authority: &Authority, version: &str) -> bool {
    let (_, port) = server.gateway.split_once(':').unwrap();
    let (url, ca) = (format!("https://localhost:{port}/"), authority.certificate());
    let fetched = curl(&["--cacert", ca.to_str().unwrap(), version, &url]);
    let expected = if version == "--http2" { "2" } else { "1.1" };
    match fetched.code {
        // What curl says to a certificate that it does not believe.
        60 => false,
        _ => {
            assert_eq!((fetched.code, fetched.status), (0, 200), "{fetched:?}");
            assert_eq!((fetched.version.as_str(), fetched.body.as_str()), (expected, "https"));
            true
        }
    }
}

#[test]
fn a_certificate_is_replaced_while_it_runs_and_a_broken_one_is_not() {
    let nginx = Nginx::start("return 200 $http_x_forwarded_proto;");
    let folder = Folder::new();
    let [first, second] = ["first", "second"].map(|name| Authority::make(&folder.path("."), name));
    let (certificate, key) = first.issue();
    let (certificate, key) = (folder.write("cert.pem", certificate), folder.write("key.pem", key));
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server = Server::in_front_of(&nginx.url(), &[&files[..], &["--limit", "1000/s"]].concat());
    for version in ["--http1.1", "--http2"] {
        assert!(believed(&server, &first, version));
        assert!(!believed(&server, &second, version));
    }
    let (certificate, key) = second.issue();
    folder.replace("cert.pem", certificate);
    folder.replace("key.pem", key);
    wait_for("the new certificate", || believed(&server, &second, "--http2").then_some(()));
    assert!(!believed(&server, &first, "--http1.1"));
    server.wait_log("the certificate was replaced");
    for broken in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        let before = server.log().matches("was not replaced").count();
        folder.replace("cert.pem", broken);
        wait_for("the refusal in the log", || {
            (server.log().matches("was not replaced").count() > before).then_some(())
        });
        assert!(believed(&server, &second, "--http1.1"), "{broken}");
    }
    let (certificate, key) = first.issue();
    folder.replace("key.pem", key);
    folder.replace("cert.pem", certificate);
    wait_for("the next certificate", || believed(&server, &first, "--http1.1").then_some(()));
}

#[test]
fn plain_text_on_a_listener_with_tls_is_closed() {
    let folder = Folder::new();
    let authority = Authority::make(&folder.path("."), "ca");
    let (certificate, key) = authority.issue();
    let (certificate, key) = (folder.write("cert.pem", certificate), folder.write("key.pem", key));
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server =
        Server::in_front_of("http://127.0.0.1:9", &[&files[..], &["--limit", "5/s"]].concat());
    let said = server.visitor().last_words(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(!said.contains("HTTP/1.1"), "{said}");
}
