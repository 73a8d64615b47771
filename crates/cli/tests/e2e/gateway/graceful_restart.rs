//! Graceful restart (SIGUSR2): a new process takes over without losing a request.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tidegate_testkit::nginx::NginxServer;

use crate::support::{
    HttpTestClient, RecordingUpstream, ServerProcess, SuccessorChain, TestFolder,
    disable_default_ports, wait_for,
};

const GET: &str = "GET /x HTTP/1.1\r\nhost: a\r\n\r\n";

/// Sends requests until stopped. With `keep`, reuses the connection until a response closes it.
fn send_until_stopped(
    address: &str,
    keep: bool,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Vec<String> {
    let (mut failures, mut open) = (Vec::new(), None);
    while !stop.load(Ordering::Relaxed) {
        let mut client = open.take().unwrap_or_else(|| HttpTestClient::connect(address));
        let more = if keep { "" } else { "connection: close\r\n" };
        client.send(&GET.replace("host: a\r\n", &format!("host: a\r\n{more}")));
        match client.try_read_response() {
            Ok(response) if response.status == 200 => {
                done.fetch_add(1, Ordering::Relaxed);
                open =
                    Some(client).filter(|_| keep && !response.head.contains("connection: close"));
            }
            Ok(response) => failures.push(format!("{response:?}")),
            Err(error) => failures.push(error.to_string()),
        }
    }
    failures
}

#[test]
fn restarts_under_load_lose_no_request() {
    let nginx = NginxServer::start("keepalive_requests 100; return 200 ok;");
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "1000000/s by ip"]);
    let mut chain = SuccessorChain::new(&server);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let failures = thread::scope(|scope| {
        let (stop, done, address) = (&stop, &done, server.gateway.as_str());
        let threads: Vec<_> = (0..8)
            .map(|n| scope.spawn(move || send_until_stopped(address, n % 2 == 0, stop, done)))
            .collect();
        for _ in 0..3 {
            let before = done.load(Ordering::Relaxed);
            wait_for("load", || (done.load(Ordering::Relaxed) > before + 200).then_some(()));
            chain.replace_process();
        }
        let before = done.load(Ordering::Relaxed);
        wait_for("load after", || (done.load(Ordering::Relaxed) > before + 200).then_some(()));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(failures.is_empty(), "{} of {done:?}: {failures:?}", failures.len());
    assert_eq!(nginx.requests().len() as u64, done.into_inner());
    assert_ne!(chain.pid, server.pid());
    assert_eq!(server.client().get("/readyz").status, 200, "the HTTP listener is passed on too");
}

#[test]
fn snapshot_keeps_counters_across_restart() {
    let nginx = NginxServer::start("return 200 ok;");
    let folder = TestFolder::new();
    let snapshot = folder.path("counters.snap");
    let args = ["--limit", "10/d by ip", "--snapshot", snapshot.to_str().unwrap()];
    let server = ServerProcess::start_gateway(&nginx.url(), &args);
    let mut chain = SuccessorChain::new(&server);
    let mut passed = 0;
    for _ in 0..3 {
        let mut client = server.gateway_client();
        passed += (0..4).filter(|_| client.get("/").status == 200).count();
        drop(client);
        chain.replace_process();
    }
    let mut client = server.gateway_client();
    passed += (0..4).filter(|_| client.get("/").status == 200).count();
    assert_eq!((passed, nginx.requests().len()), (10, 10));
}

#[test]
fn failed_successor_leaves_predecessor_serving() {
    let nginx = NginxServer::start("return 200 ok;");
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", "rules: [{ id: a, key_by: ip, limit: 100/d }]");
    let upstream = nginx.url();
    let mut server = ServerProcess::start_gateway_with_config(&rules, &["--upstream", &upstream]);
    let mut client = server.gateway_client();
    assert_eq!(client.get("/").header("x-ratelimit-remaining"), Some("99"));
    // The running process keeps its last valid rules, but a successor cannot start with these.
    folder.replace_atomically("rules.yaml", "rules: [{ id: a, limt: 1/d }]");
    server.wait_for_log("not reloaded");
    server.signal("USR2");
    server.wait_for_log("starting a new process");
    wait_for("the successor's error", || {
        (server.log().matches("1 problem in").count() == 2).then_some(())
    });
    assert_eq!(client.get("/").header("x-ratelimit-remaining"), Some("98"));
    // With the file corrected, the next successor takes over.
    folder.replace_atomically("rules.yaml", "rules: [{ id: a, key_by: ip, limit: 50/d }]");
    server.wait_for_log("rules reloaded");
    wait_for("the failed successor to exit", || {
        server.signal("USR2");
        (server.log().matches("starting a new process with").count() > 1).then_some(())
    });
    drop(client);
    assert_eq!(server.wait_for_exit().code(), Some(0), "{}", server.log());
    let _chain = SuccessorChain::from_log(&server);
    let response = server.gateway_client().get("/");
    assert_eq!(response.header("x-ratelimit-remaining"), Some("49"), "{}", server.log());
}

#[test]
fn restart_follows_updated_binary_link() {
    let upstream = RecordingUpstream::start();
    let folder = TestFolder::new();
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
    disable_default_ports(&mut command);
    let server = ServerProcess::spawn(command);
    std::fs::remove_file(&link).unwrap();
    symlink(&new, &link).unwrap();
    let mut chain = SuccessorChain::new(&server);
    chain.replace_process();
    assert_eq!(std::fs::read_link(format!("/proc/{}/exe", chain.pid)).unwrap(), new);
    assert_eq!(server.gateway_client().get("/").status, 200);
}
