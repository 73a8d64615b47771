//! The RESP door with a certificate (`rediss://`): redis-cli and redis-py come with TLS, and others not at all.

use std::path::Path;
use std::process::Command;

use tidegate_testkit::python::python;

use super::{RULES, port};
use crate::support::{Authority, Folder, Server, run, text, wait_for};

/// A server whose RESP door has a certificate of this authority.
fn start(folder: &Folder, authority: &Authority) -> Server {
    let (certificate, key) = authority.issue();
    let (certificate, key) = (folder.write("cert.pem", certificate), folder.write("key.pem", key));
    let files = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let args = ["--resp-tls-cert", files[0], "--resp-tls-key", files[1]];
    Server::start(&[&args[..], RULES].concat())
}

/// What redis-cli says on either of its outputs.
fn redis_cli(server: &Server, ca: &Path, words: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "localhost", "-p", port(server), "--tls", "--cacert"]).arg(ca);
    let output = command.args(words).output().unwrap();
    text(&[output.stdout, output.stderr].concat()).trim_end().to_owned()
}

#[test]
fn redis_cli_and_redis_py_ask_over_tls() {
    let folder = Folder::new();
    let [good, wrong] = ["good", "wrong"].map(|name| Authority::make(&folder.path("."), name));
    let server = start(&folder, &good);
    let ask = |words: &[&str]| redis_cli(&server, &good.certificate(), words);
    assert_eq!(ask(&["PING"]), "PONG", "{}", server.log());
    assert_eq!(ask(&["CL.THROTTLE", "user:7", "15", "30", "60"]), "0\n16\n15\n-1\n2");
    assert!(ask(&["TIDEGATE.CHECK", "api_key", "demo"]).contains("allowed\n1\n"));
    let refused = redis_cli(&server, &wrong.certificate(), &["PING"]);
    assert!(refused.contains("certificate verify failed"), "{refused}");
    // A pipeline whose replies do not fit one record of TLS.
    let url = format!("rediss://localhost:{}", port(&server));
    let script = "import redis, sys\n\
                  r = redis.Redis.from_url(sys.argv[1], ssl_ca_certs=sys.argv[2])\n\
                  p = r.pipeline(transaction=False)\n\
                  for n in range(3000): p.execute_command('CL.THROTTLE', 'many', 999, 1, 86400)\n\
                  told = p.execute()\n\
                  print(sum(1 for t in told if t[0] == 0), len(r.echo('x' * 50000)))";
    let output = python().args(["-c", script, &url]).arg(good.certificate()).output().unwrap();
    let told = text(&[output.stdout, output.stderr].concat());
    assert_eq!(told, "1000 50000\n");
}

#[test]
fn whoever_comes_without_tls_is_told_nothing_and_the_next_is_served() {
    let folder = Folder::new();
    let authority = Authority::make(&folder.path("."), "ca");
    let server = start(&folder, &authority);
    let said = crate::support::Client::connect(&server.resp).last_words(b"PING\r\n");
    assert!(!said.contains("PONG"), "{said}");
    assert_eq!(redis_cli(&server, &authority.certificate(), &["PING"]), "PONG");
}

#[test]
fn the_certificate_is_replaced_without_a_restart() {
    let folder = Folder::new();
    let [first, second] = ["first", "second"].map(|name| Authority::make(&folder.path("."), name));
    let server = start(&folder, &first);
    let believed = |ca: &Authority| redis_cli(&server, &ca.certificate(), &["PING"]) == "PONG";
    assert!(believed(&first) && !believed(&second));
    let (certificate, key) = second.issue();
    folder.replace("cert.pem", certificate);
    folder.replace("key.pem", key);
    wait_for("the new certificate", || believed(&second).then_some(()));
    assert!(!believed(&first));
}

#[test]
fn a_certificate_without_its_key_is_a_usage_error() {
    let output = run(&["serve", "--resp-tls-cert", "cert.pem"]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(told.contains("--resp-tls-key is missing"), "{told}");
    assert!(told.contains("write: --resp-tls-cert cert.pem --resp-tls-key key.pem"), "{told}");
}
