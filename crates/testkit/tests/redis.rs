//! Tests of the Redis helpers against real servers.

#![expect(clippy::unwrap_used, reason = "an unexpected result fails the test")]

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidegate_testkit::process::{ChildProcess, eventually, eventually_some, is_alive};
use tidegate_testkit::redis::{
    ClientCertificatePolicy, RedisClient, RedisCluster, RedisReply, RedisServer, SentinelGroup,
    TestCertificates, slot_of,
};

const DAY: i64 = 86_400;

fn ok() -> RedisReply {
    RedisReply::Simple("OK".into())
}

fn pong() -> RedisReply {
    RedisReply::Simple("PONG".into())
}

#[test]
fn client_reads_every_reply_kind() {
    let server = RedisServer::start();
    let mut client = server.connect().unwrap();
    let bytes = b"\0\r\n$5\r\n\xff".as_slice();
    assert_eq!(client.command(&[b"SET".as_slice(), bytes, bytes]).unwrap(), ok());
    assert_eq!(
        client.command(&[b"GET".as_slice(), bytes]).unwrap(),
        RedisReply::Bulk(bytes.into())
    );
    assert_eq!(client.command(&["GET", "none"]).unwrap(), RedisReply::Nil);
    assert_eq!(client.command(&["INCRBY", "n", "-7"]).unwrap(), RedisReply::Integer(-7));
    assert!(client.command(&["NONE"]).unwrap().error().unwrap().starts_with("ERR unknown"));
    let nested = client.command(&["EVAL", "return {1, {'a', false}, {}}", "0"]).unwrap();
    let inner = RedisReply::Array(vec![RedisReply::Bulk(b"a".into()), RedisReply::Nil]);
    assert_eq!(nested.items(), [RedisReply::Integer(1), inner, RedisReply::Array(vec![])]);
    let mut unix = RedisClient::connect_unix(&server.socket()).unwrap();
    assert_eq!(unix.command(&["GET", "n"]).unwrap().integer(), -7);
    assert_eq!(server.command(&["INFO", "server"]).field("redis_mode").unwrap(), "standalone");
}

#[test]
fn server_applies_settings_without_persistence() {
    let server = RedisServer::start_with(&["--maxmemory", "2mb"]);
    let setting = |name| server.command(&["CONFIG", "GET", name]).items()[1].text();
    assert_eq!(setting("maxmemory"), "2097152");
    assert_eq!((setting("save"), setting("appendonly")), (String::new(), "no".into()));
    assert_eq!(server.command(&["DEBUG", "SLEEP", "0"]), ok());
}

#[test]
#[should_panic(expected = "Bad directive")]
fn failed_server_start_shows_log() {
    drop(RedisServer::start_with(&["--no-such-setting", "1"]));
}

#[test]
fn paused_server_answers_after_resume() {
    let server = RedisServer::start();
    let mut client = server.connect().unwrap();
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
    server.process().pause();
    client.set_timeout(Duration::from_millis(100)).unwrap();
    assert_eq!(client.command(&["PING"]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(server.process().is_running());
    server.process().resume();
    client.set_timeout(RedisClient::TIMEOUT).unwrap();
    assert_eq!(client.receive().unwrap(), pong());
}

#[test]
fn restart_keeps_only_the_port() {
    let server = RedisServer::start();
    let (port, pid) = (server.port(), server.process().pid());
    server.command(&["SET", "a", "b"]);
    server.process().kill();
    assert!(!server.process().is_running());
    let refused = TcpStream::connect(server.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "the port is reserved and closed");
    server.restart();
    assert_eq!((server.port(), server.command(&["GET", "a"])), (port, RedisReply::Nil));
    assert_ne!(server.process().pid(), pid);
    server.stop();
    assert!(server.try_command(&["PING"]).is_err());
    server.restart();
    server.restart();
    assert_eq!(server.command(&["PING"]), pong());
}

#[test]
fn dropped_server_leaves_no_trace() {
    let server = RedisServer::start();
    let pid = server.process().pid();
    let folder = server.socket().parent().unwrap().to_path_buf();
    server.process().pause();
    drop(server);
    assert!(!is_alive(pid) && !folder.exists());
}

/// Guards against the parent-death signal, which the kernel sends when the starting thread ends.
#[test]
fn server_outlives_its_starting_thread() {
    let server = std::thread::spawn(RedisServer::start).join().unwrap();
    assert_eq!(server.command(&["PING"]), pong());
}

/// Runs itself in a child process, which starts a server and is then killed.
#[test]
fn server_dies_with_killed_test() {
    const NAME: &str = "server_dies_with_killed_test";
    const FILE: &str = "TIDEGATE_TEST_PID_FILE";
    if let Some(file) = std::env::var_os(FILE) {
        let server = RedisServer::start();
        let next = Path::new(&file).with_extension("next");
        std::fs::write(&next, server.process().pid().to_string()).unwrap();
        std::fs::rename(next, file).unwrap();
        eventually("being killed", || false);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME]).env(FILE, &file).env("TMPDIR", folder.path());
    let victim = ChildProcess::start(&command, &folder.path().join("log"));
    let pid: u32 = eventually_some("the child process has a server", || {
        std::fs::read_to_string(&file).ok()?.parse().ok()
    });
    assert!(is_alive(pid));
    victim.kill();
    eventually("the server is dead", || !is_alive(pid));
}

#[test]
fn concurrent_servers_get_distinct_ports() {
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(RedisServer::start)).collect();
    let servers: Vec<RedisServer> =
        threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for server in &servers {
        let port = server.command(&["CONFIG", "GET", "port"]).items()[1].integer();
        assert_eq!(port, i64::from(server.port()));
    }
}

#[test]
fn tls_enforces_client_certificate_policy() {
    let other_server = RedisServer::start_tls(ClientCertificatePolicy::Ignored);
    let foreign = other_server.certificates().unwrap();
    for (policy, without_allowed, foreign_allowed) in [
        (ClientCertificatePolicy::Required, false, false),
        (ClientCertificatePolicy::Optional, true, false),
        (ClientCertificatePolicy::Ignored, true, true),
    ] {
        let server = RedisServer::start_tls(policy);
        let own = server.certificates().unwrap();
        assert!(server.url().starts_with("rediss://"));
        assert_eq!(server.command(&["PING"]), pong(), "over the plain socket");
        assert!(
            is_answered_over_tls(&server, own, Some(own)),
            "{policy:?}, with a valid certificate"
        );
        assert_eq!(
            is_answered_over_tls(&server, own, None),
            without_allowed,
            "{policy:?}, without a certificate"
        );
        assert_eq!(
            is_answered_over_tls(&server, own, Some(foreign)),
            foreign_allowed,
            "{policy:?}, with a certificate of another CA"
        );
        assert!(
            !is_answered_over_tls(&server, foreign, Some(own)),
            "the server's certificate is of another CA"
        );
        assert!(
            RedisClient::connect(server.address()).unwrap().command(&["PING"]).is_err(),
            "plain TCP is rejected"
        );
    }
}

/// Whether redis-cli gets a response when it trusts one CA and presents a certificate of another.
fn is_answered_over_tls(
    server: &RedisServer,
    trusted: &TestCertificates,
    shown: Option<&TestCertificates>,
) -> bool {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "localhost", "-p", &server.port().to_string(), "--tls", "--cacert"]);
    command.arg(trusted.ca());
    if let Some(shown) = shown {
        command.arg("--cert").arg(shown.client()).arg("--key").arg(shown.client_key());
    }
    let output = command.arg("PING").output().unwrap();
    output.stdout == b"PONG\n"
}

#[test]
fn fake_clock_steps_and_continues() {
    let server = RedisServer::start_with_fake_clock();
    let now = || server.command(&["TIME"]).items()[0].integer();
    let near = |seconds: i64, wanted: i64| (wanted..wanted + 10).contains(&seconds);
    let start = now();
    server.step_clock(DAY);
    assert!(near(now(), start + DAY));
    server.step_clock(-3 * DAY);
    assert!(near(now(), start - 2 * DAY));
    server.step_clock(2 * DAY);
    let seen = now();
    assert!(near(seen, start));
    eventually("time advances", || now() > seen);
    assert_eq!(server.command(&["PING"]), pong());
    assert!(server.command(&["INFO"]).field("uptime_in_seconds").is_some());
}

#[test]
fn keys_expire_by_fake_clock() {
    let server = RedisServer::start_with_fake_clock();
    let now_ms = || {
        let time = server.command(&["TIME"]);
        time.items()[0].integer() * 1000 + time.items()[1].integer() / 1000
    };
    let hour = (now_ms() + 3_600_000).to_string();
    server.command(&["SET", "for", "1", "PX", "3600000"]);
    server.command(&["SET", "until", "1", "PXAT", &hour]);
    let alive = || server.command(&["EXISTS", "for", "until"]).integer();
    let left = |key| server.command(&["PTTL", key]).integer();
    server.step_clock(3_500);
    assert_eq!(alive(), 2);
    assert!(left("for") <= 100_000 && left("until") <= 100_000);
    // After a step back a key lives longer, because its expiry time is absolute.
    server.step_clock(-DAY);
    assert!(left("for") > 86_400_000 && left("until") > 86_400_000);
    server.step_clock(DAY + 100);
    assert_eq!(alive(), 0);
    // A key set after a step has its full lifetime.
    server.command(&["SET", "for", "1", "PX", "3600000"]);
    assert!((3_590_000..=3_600_000).contains(&left("for")));
    server.command(&["SET", "soon", "1", "PX", "20"]);
    eventually("the key is deleted without being read", || {
        server.command(&["DBSIZE"]).integer() == 1
    });
}

#[test]
fn fake_clock_server_leaves_no_shared_memory() {
    let server = RedisServer::start_with_fake_clock();
    let names = |pid: u32| {
        let files = std::fs::read_dir("/dev/shm").unwrap().flatten();
        let of_pid = move |name: &String| name.ends_with(&format!("_{pid}"));
        files.map(|file| file.file_name().into_string().unwrap()).filter(of_pid).count()
    };
    let first = server.process().pid();
    server.restart();
    let second = server.process().pid();
    drop(server);
    assert_eq!((names(first), names(second)), (0, 0));
}

#[test]
fn cluster_moves_slots_stepwise() {
    let cluster = RedisCluster::start();
    let (one, two, both) = ("{a}1", "{a}2", ["MGET", "{a}1", "{a}2"]);
    let slot = slot_of(one);
    let from = cluster.primary_of(slot);
    assert_eq!(from.command(&["CLUSTER", "KEYSLOT", one]).integer(), i64::from(slot));
    let to = &cluster.nodes()[..3].iter().find(|node| node.port() != from.port()).unwrap();
    let moved = |node: &RedisServer| format!("MOVED {slot} {}", node.address());
    let ask = format!("ASK {slot} {}", to.address());

    assert_eq!(from.command(&["SET", one, "x"]), ok());
    assert_eq!(from.command(&["SET", two, "y"]), ok());
    assert_eq!(to.command(&["GET", one]), RedisReply::Error(moved(from)));

    cluster.begin_move(slot, to);
    assert_eq!(from.command(&["GET", one]).text(), "x", "the key has not moved yet");
    assert_eq!(from.command(&["GET", "{a}new"]), RedisReply::Error(ask.clone()));
    cluster.move_key(one, to);
    assert_eq!(from.command(&["GET", one]), RedisReply::Error(ask));
    assert_eq!(to.command(&["GET", one]), RedisReply::Error(moved(from)), "without ASKING");
    let mut asking = to.connect().unwrap();
    assert_eq!(asking.command(&["ASKING"]).unwrap(), ok());
    assert_eq!(asking.command(&["GET", one]).unwrap().text(), "x");
    assert!(from.command(&both).error().unwrap().starts_with("TRYAGAIN"));

    cluster.finish_move(slot, to);
    assert_eq!(cluster.primary_of(slot).port(), to.port());
    assert_eq!(from.command(&["GET", two]), RedisReply::Error(moved(to)));
    assert_eq!(to.command(&both).items().len(), 2);

    cluster.move_slot(slot, from);
    assert_eq!(from.command(&["GET", two]).text(), "y");
    assert!(cluster.is_healthy());
}

#[test]
fn cluster_replica_takes_over() {
    let cluster = RedisCluster::start();
    let slot = slot_of("key");
    let old = cluster.primary_of(slot);
    let replica = cluster.replica_of(old);
    let mut client = old.connect().unwrap();
    assert_eq!(client.command(&["SET", "key", "x"]).unwrap(), ok());
    assert_eq!(client.command(&["WAIT", "1", "5000"]).unwrap().integer(), 1);

    let new = cluster.fail_over(old);
    assert_eq!(new.port(), replica.port());
    assert_eq!(cluster.primary_of(slot).port(), new.port());
    assert_eq!(new.command(&["GET", "key"]).text(), "x");

    old.restart();
    cluster.await_replica(old);
    assert_eq!(cluster.replica_of(new).port(), old.port());
    assert_eq!(
        old.command(&["GET", "key"]),
        RedisReply::Error(format!("MOVED {slot} {}", new.address()))
    );
}

#[test]
fn sentinels_replace_a_dead_primary() {
    let sentinels = SentinelGroup::start();
    let first = sentinels.primary();
    assert_eq!(first.port(), sentinels.servers()[0].port());
    assert_eq!(sentinels.sentinel_urls().len(), 3);
    let mut client = first.connect().unwrap();
    assert_eq!(client.command(&["SET", "a", "b"]).unwrap(), ok());
    assert_eq!(client.command(&["WAIT", "2", "5000"]).unwrap().integer(), 2);

    let old = sentinels.kill_primary();
    let new = sentinels.await_failover(old);
    assert_ne!(new.port(), old.port());
    assert_eq!(new.command(&["GET", "a"]).text(), "b");
    assert_eq!(new.command(&["SET", "a", "c"]), ok());

    old.restart();
    eventually("the old primary becomes a replica", || {
        old.command(&["ROLE"]).items()[0].text() == "slave"
    });
    assert_eq!(sentinels.primary().port(), new.port());
}
