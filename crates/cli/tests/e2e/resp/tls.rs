//! The RESP listener with TLS (`rediss://`): redis-cli and redis-py connect, and plaintext clients
//! are rejected.

use std::path::Path;
use std::process::Command;

use tidegate_testkit::python::python;

use super::{RULES, resp_port};
use crate::support::{
    ServerProcess, TestCertificateAuthority, TestFolder, run_tidegate, utf8_text, wait_for,
};

/// A server whose RESP listener has a certificate of this authority.
fn start_server(folder: &TestFolder, authority: &TestCertificateAuthority) -> ServerProcess {
    let (certificate, key) = authority.issue_certificate();
    let (certificate, key) = (folder.write("cert.pem", certificate), folder.write("key.pem", key));
    let files = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let args = ["--resp-tls-cert", files[0], "--resp-tls-key", files[1]];
    ServerProcess::start(&[&args[..], RULES].concat())
}

/// The output of redis-cli, stdout and stderr.
fn run_redis_cli_tls(server: &ServerProcess, ca: &Path, args: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "localhost", "-p", resp_port(server), "--tls", "--cacert"]).arg(ca);
    let output = command.args(args).output().unwrap();
    utf8_text(&[output.stdout, output.stderr].concat()).trim_end().to_owned()
}

#[test]
fn redis_clients_connect_over_tls() {
    let folder = TestFolder::new();
    let [good, wrong] =
        ["good", "wrong"].map(|name| TestCertificateAuthority::create(&folder.path("."), name));
    let server = start_server(&folder, &good);
    let run = |args: &[&str]| run_redis_cli_tls(&server, &good.certificate_path(), args);
    assert_eq!(run(&["PING"]), "PONG", "{}", server.log());
    assert_eq!(run(&["CL.THROTTLE", "user:7", "15", "30", "60"]), "0\n16\n15\n-1\n2");
    assert!(run(&["TIDEGATE.CHECK", "api_key", "demo"]).contains("allowed\n1\n"));
    let refused = run_redis_cli_tls(&server, &wrong.certificate_path(), &["PING"]);
    assert!(refused.contains("certificate verify failed"), "{refused}");
    // A pipeline whose replies do not fit into one TLS record.
    let url = format!("rediss://localhost:{}", resp_port(&server));
    let script = "import redis, sys\n\
                  r = redis.Redis.from_url(sys.argv[1], ssl_ca_certs=sys.argv[2])\n\
                  p = r.pipeline(transaction=False)\n\
                  for n in range(3000): p.execute_command('CL.THROTTLE', 'many', 999, 1, 86400)\n\
                  replies = p.execute()\n\
                  print(sum(1 for t in replies if t[0] == 0), len(r.echo('x' * 50000)))";
    let output = python().args(["-c", script, &url]).arg(good.certificate_path()).output().unwrap();
    let text = utf8_text(&[output.stdout, output.stderr].concat());
    assert_eq!(text, "1000 50000\n");
}

#[test]
fn plaintext_client_is_rejected() {
    let folder = TestFolder::new();
    let authority = TestCertificateAuthority::create(&folder.path("."), "ca");
    let server = start_server(&folder, &authority);
    let received =
        crate::support::HttpTestClient::connect(&server.resp).send_and_read_to_end(b"PING\r\n");
    assert!(!received.contains("PONG"), "{received}");
    assert_eq!(run_redis_cli_tls(&server, &authority.certificate_path(), &["PING"]), "PONG");
}

#[test]
fn certificate_is_reloaded_without_restart() {
    let folder = TestFolder::new();
    let [first, second] =
        ["first", "second"].map(|name| TestCertificateAuthority::create(&folder.path("."), name));
    let server = start_server(&folder, &first);
    let is_trusted = |ca: &TestCertificateAuthority| {
        run_redis_cli_tls(&server, &ca.certificate_path(), &["PING"]) == "PONG"
    };
    assert!(is_trusted(&first) && !is_trusted(&second));
    let (certificate, key) = second.issue_certificate();
    folder.replace_atomically("cert.pem", certificate);
    folder.replace_atomically("key.pem", key);
    wait_for("the new certificate", || is_trusted(&second).then_some(()));
    assert!(!is_trusted(&first));
}

#[test]
fn certificate_without_key_is_usage_error() {
    let output = run_tidegate(&["serve", "--resp-tls-cert", "cert.pem"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = utf8_text(&output.stderr);
    assert!(errors.contains("--resp-tls-key is missing"), "{errors}");
    assert!(errors.contains("write: --resp-tls-cert cert.pem --resp-tls-key key.pem"), "{errors}");
}
