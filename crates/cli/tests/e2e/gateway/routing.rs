//! Several upstreams: routing by host and path, load balancing, and ejection of dead servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tidegate_testkit::nginx::NginxServer;

use crate::support::{ServerProcess, TestFolder, run_tidegate, utf8_text, wait_for};

const RULES: &str = "rules: [{ id: a, key_by: ip, limit: 1000000/s }]";

#[test]
fn host_and_path_select_the_upstream() {
    let [api, web] = ["api", "web"].map(|name| NginxServer::start(&format!("return 200 {name};")));
    let folder = TestFolder::new();
    let document = format!(
        "server:\n  upstreams:\n    api: {{ servers: [\"{}\"], host: server }}\n    \
         web: {{ servers: [\"{}\"] }}\n  \
         routes:\n    - {{ host: api.example.com, upstream: api }}\n    \
         - {{ path: /api, upstream: api }}\n    \
         - {{ host: \"*.example.com\", upstream: web }}\n{RULES}",
        api.url(),
        web.url()
    );
    let server =
        ServerProcess::start_gateway_with_config(&folder.write("rules.yaml", document), &[]);
    let send = |host: &str, path: &str| {
        let mut client = server.gateway_client();
        client.send(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        let response = client.read_response();
        (response.status, response.body.as_str().unwrap_or_default().to_owned())
    };
    for (host, path, expected) in [
        ("api.example.com", "/", "api"),
        ("API.EXAMPLE.COM:8080", "/x", "api"),
        ("www.example.com", "/x", "web"),
        ("other.test", "/api/x", "api"),
        ("other.test", "/x/../api", "api"),
    ] {
        assert_eq!(send(host, path), (200, expected.to_owned()), "{host}{path}");
    }
    assert_eq!(send("other.test", "/apis").0, 404);
    assert_eq!(send("other.test", "/").0, 404);
    let lines = api.requests();
    let host = format!("host={}", api.address());
    assert!(lines.iter().all(|line| line.contains(&host)), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("GET /api HTTP/1.1"), "{lines:?}");
    assert!(web.requests()[0].contains("host=www.example.com"));
}

#[test]
fn weighted_balance_is_exact() {
    let [heavy, light] = [0, 1].map(|_| NginxServer::start("return 200 ok;"));
    let folder = TestFolder::new();
    let document = format!(
        "server:\n  upstreams:\n    api:\n      balance: weighted\n      servers:\n        \
         - {{ url: \"{}\", weight: 3 }}\n        - \"{}\"\n{RULES}",
        heavy.url(),
        light.url()
    );
    let server =
        ServerProcess::start_gateway_with_config(&folder.write("rules.yaml", document), &[]);
    let mut client = server.gateway_client();
    assert!((0..80).all(|_| client.get("/").status == 200));
    assert_eq!((heavy.requests().len(), light.requests().len()), (60, 20));
}

#[test]
fn dead_server_is_ejected_and_recovers() {
    const CLIENTS: usize = 4;
    let servers = [0, 1].map(|_| NginxServer::start("return 200 ok;"));
    let folder = TestFolder::new();
    for health in [
        "",
        "health: { path: /healthz, interval: 50ms, unhealthy_threshold: 1, healthy_threshold: 1 }",
    ] {
        let document = format!(
            "server:\n  upstreams:\n    api:\n      servers: [\"{}\", \"{}\"]\n      {health}\n{RULES}",
            servers[0].url(),
            servers[1].url()
        );
        let server =
            ServerProcess::start_gateway_with_config(&folder.write("rules.yaml", document), &[]);
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let wait_for_load = || {
            let before = done.load(Ordering::Relaxed);
            wait_for("load", || (done.load(Ordering::Relaxed) > before + 100).then_some(()));
        };
        let failures: usize = thread::scope(|scope| {
            let send = || {
                let (mut client, mut failures) = (server.gateway_client(), 0);
                while !stop.load(Ordering::Relaxed) {
                    match client.get("/x").status {
                        200 => done.fetch_add(1, Ordering::Relaxed),
                        _ => {
                            failures += 1;
                            0
                        }
                    };
                }
                failures
            };
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(send)).collect();
            wait_for_load();
            servers[0].process().kill();
            server.wait_for_log("upstream server unhealthy");
            wait_for_load();
            servers[0].restart();
            server.wait_for_log("upstream server healthy again");
            let before = count_requests(&servers[0]);
            wait_for("the recovered server to be used", || {
                (count_requests(&servers[0]) > before + 20).then_some(())
            });
            stop.store(true, Ordering::Relaxed);
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        assert!(failures <= CLIENTS, "{failures} failed: {}", server.log());
    }
}

/// The servers that `tidegate route` lists for a session, the first choice first.
fn planned_servers(config: &str, session: &str) -> Vec<String> {
    let session = format!("x-session={session}");
    let output = run_tidegate(&["route", "--config", config, "path=/x", &session, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", utf8_text(&output.stderr));
    let planned: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(planned["is_hashed"], true);
    let servers = planned["servers"].as_array().unwrap();
    servers.iter().map(|server| server.as_str().unwrap().to_owned()).collect()
}

#[test]
fn hashed_sessions_stay_on_their_server() {
    let servers = ["a", "b", "c"].map(|name| NginxServer::start(&format!("return 200 {name};")));
    let folder = TestFolder::new();
    let urls = servers.each_ref().map(NginxServer::url);
    let document = format!(
        "server:\n  upstreams:\n    api:\n      balance: {{ hash: {{ header: x-session }} }}\n      \
         servers: [\"{}\", \"{}\", \"{}\"]\n{RULES}",
        urls[0], urls[1], urls[2]
    );
    let config = folder.write("rules.yaml", document);
    let gateway = ServerProcess::start_gateway_with_config(&config, &[]);
    let mut client = gateway.gateway_client();
    let mut server_of = |session: usize| {
        client.send(&format!("GET /x HTTP/1.1\r\nhost: a\r\nx-session: s{session}\r\n\r\n"));
        let response = client.read_response();
        assert_eq!(response.status, 200);
        let name = response.body.as_str().unwrap_or_default();
        ["a", "b", "c"].iter().position(|known| *known == name).unwrap()
    };
    let first: Vec<usize> = (0..30).map(&mut server_of).collect();
    assert_eq!(first, (0..30).map(&mut server_of).collect::<Vec<_>>());
    assert!((0..3).all(|server| first.contains(&server)), "{first:?}");
    let config = config.to_str().unwrap();
    let planned: Vec<Vec<String>> =
        (0..3).map(|session| planned_servers(config, &format!("s{session}"))).collect();
    for (session, planned) in planned.iter().enumerate() {
        assert_eq!(planned[0], urls[first[session]], "session {session}");
    }
    // Sessions of the server that leaves move to their next choice; the others stay.
    let left = first[0];
    servers[left].process().kill();
    assert_eq!(urls[server_of(0)], planned[0][1]);
    gateway.wait_for_log("upstream server unhealthy");
    for (session, before) in first.iter().enumerate().filter(|(_, before)| **before != left) {
        assert_eq!(server_of(session), *before, "session {session}");
    }
}

#[test]
fn hash_of_missing_fact_ends_the_start() {
    let folder = TestFolder::new();
    let document = format!(
        "server:\n  upstreams:\n    api:\n      balance: {{ hash: api_key }}\n      \
         servers: [\"http://127.0.0.1:9\"]\n{RULES}"
    );
    let config = folder.write("rules.yaml", document);
    for command in [["serve", "--config"].as_slice(), &["config", "check"], &["route", "--config"]]
    {
        let args = [command, &[config.to_str().unwrap()]].concat();
        let output = run_tidegate(&args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let error = utf8_text(&output.stderr);
        assert!(error.contains("has the fact `api_key`"), "{error}");
    }
}

fn count_requests(nginx: &NginxServer) -> usize {
    nginx.requests().iter().filter(|line| line.starts_with("GET /x ")).count()
}
