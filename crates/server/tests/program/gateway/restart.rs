//! A new process takes over (SIGUSR2) and nobody notices.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tidegate_testkit::nginx::Nginx;

use crate::support::{
    Client, Folder, Server, Successors, Upstream, wait_for, without_default_ports,
};

const GET: &str = "GET /x HTTP/1.1\r\nhost: a\r\n\r\n";

/// Asks until told to stop. What is kept is used until an answer says that it closes.
fn ask(address: &str, keep: bool, stop: &AtomicBool, done: &AtomicU64) -> Vec<String> {
    let (mut failures, mut kept) = (Vec::new(), None);
    while !stop.load(Ordering::Relaxed) {
        let mut client = kept.take().unwrap_or_else(|| Client::connect(address));
        let more = if keep { "" } else { "connection: close\r\n" };
        client.send(&GET.replace("host: a\r\n", &format!("host: a\r\n{more}")));
        match client.try_answer() {
            Ok(answer) if answer.status == 200 => {
                done.fetch_add(1, Ordering::Relaxed);
                kept = Some(client).filter(|_| keep && !answer.head.contains("connection: close"));
            }
            Ok(answer) => failures.push(format!("{answer:?}")),
            Err(error) => failures.push(error.to_string()),
        }
    }
    failures
}

#[test]
fn three_restarts_under_load_lose_no_request() {
    let nginx = Nginx::start("keepalive_requests 100; return 200 well;");
    let server = Server::in_front_of(&nginx.url(), &["--limit", "1000000/s by ip"]);
    let mut line = Successors::of(&server);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let failures = thread::scope(|scope| {
        let (stop, done, address) = (&stop, &done, server.gateway.as_str());
        let threads: Vec<_> =
            (0..8).map(|n| scope.spawn(move || ask(address, n % 2 == 0, stop, done))).collect();
        for _ in 0..3 {
            let before = done.load(Ordering::Relaxed);
            wait_for("load", || (done.load(Ordering::Relaxed) > before + 200).then_some(()));
            line.next();
        }
        let before = done.load(Ordering::Relaxed);
        wait_for("load after", || (done.load(Ordering::Relaxed) > before + 200).then_some(()));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(failures.is_empty(), "{} of {done:?}: {failures:?}", failures.len());
    assert_eq!(nginx.requests().len() as u64, done.into_inner());
    assert_ne!(line.pid, server.pid());
    assert_eq!(server.client().get("/readyz").status, 200, "the HTTP door was handed on too");
}

#[test]
fn counters_survive_with_a_snapshot() {
    let nginx = Nginx::start("return 200 well;");
    let folder = Folder::new();
    let snapshot = folder.path("counters.snap");
    let args = ["--limit", "10/d by ip", "--snapshot", snapshot.to_str().unwrap()];
    let server = Server::in_front_of(&nginx.url(), &args);
    let mut line = Successors::of(&server);
    let mut passed = 0;
    for _ in 0..3 {
        let mut client = server.visitor();
        passed += (0..4).filter(|_| client.get("/").status == 200).count();
        drop(client);
        line.next();
    }
    let mut client = server.visitor();
    passed += (0..4).filter(|_| client.get("/").status == 200).count();
    assert_eq!((passed, nginx.requests().len()), (10, 10));
}

#[test]
fn a_successor_that_cannot_start_changes_nothing() {
    let nginx = Nginx::start("return 200 well;");
    let folder = Folder::new();
    let rules = folder.write("rules.yaml", "rules: [{ id: a, key_by: ip, limit: 100/d }]");
    let upstream = nginx.url();
    let mut server = Server::gateway_with(&rules, &["--upstream", &upstream]);
    let mut client = server.visitor();
    assert_eq!(client.get("/").header("x-ratelimit-remaining"), Some("99"));
    // Wrong in a way that the running process keeps its last good rules for.
    folder.replace("rules.yaml", "rules: [{ id: a, limt: 1/d }]");
    server.wait_log("not reloaded");
    server.signal("USR2");
    server.wait_log("a new process is starting");
    wait_for("the successor's words", || {
        (server.log().matches("1 problem in").count() == 2).then_some(())
    });
    assert_eq!(client.get("/").header("x-ratelimit-remaining"), Some("98"));
    // Mended, the next one takes over.
    folder.replace("rules.yaml", "rules: [{ id: a, key_by: ip, limit: 50/d }]");
    server.wait_log("rules reloaded");
    wait_for("the end of the successor that failed", || {
        server.signal("USR2");
        (server.log().matches("a new process is starting with").count() > 1).then_some(())
    });
    drop(client);
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    let _line = Successors::last(&server);
    let answer = server.visitor().get("/");
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("49"), "{}", server.log());
}

#[test]
fn a_link_that_leads_to_another_version_is_followed() {
    let upstream = Upstream::start();
    let folder = Folder::new();
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let [old, new] = ["old", "new"].map(|name| folder.path(name));
    for version in [&old, &new] {
        std::fs::hard_link(program, version)
            .or_else(|_| std::fs::copy(program, version).map(drop))
            .unwrap();
    }
    let link = folder.path("tidegate");
    symlink(&old, &link).unwrap();
    let mut command = std::process::Command::new(&link);
    command.args(["serve", "--http", "127.0.0.1:0", "--gateway", "127.0.0.1:0"]);
    command.args(["--upstream", &upstream.url(), "--limit", "5/min by ip"]);
    without_default_ports(&mut command);
    let server = Server::spawn(command);
    std::fs::remove_file(&link).unwrap();
    symlink(&new, &link).unwrap();
    let mut line = Successors::of(&server);
    line.next();
    assert_eq!(std::fs::read_link(format!("/proc/{}/exe", line.pid)).unwrap(), new);
    assert_eq!(server.visitor().get("/").status, 200);
}
