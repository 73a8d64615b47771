//! Tests of the proxy's modes in front of a real server.

#![expect(clippy::unwrap_used, reason = "an unexpected result fails the test")]

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_testkit::process::eventually;
use tidegate_testkit::proxy::{ConnectionEnd, DelayScope, FaultProxy};
use tidegate_testkit::redis::{RedisClient, RedisReply, RedisServer};

const SHORT_TIMEOUT: Duration = Duration::from_millis(100);

fn server_and_proxy() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    (server, proxy)
}

fn client(proxy: &FaultProxy) -> RedisClient {
    RedisClient::connect(proxy.address()).unwrap()
}

fn client_with_short_timeout(proxy: &FaultProxy) -> RedisClient {
    let mut client = client(proxy);
    client.set_timeout(SHORT_TIMEOUT).unwrap();
    client
}

fn timed_out(answer: io::Result<RedisReply>) -> bool {
    answer.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

fn pong() -> RedisReply {
    RedisReply::Simple("PONG".into())
}

#[test]
fn proxy_forwards_and_counts_connections() {
    let (_server, proxy) = server_and_proxy();
    let mut one = client(&proxy);
    let big = vec![b'x'; 3_000_000];
    assert_eq!(one.command(&[b"ECHO".as_slice(), &big]).unwrap(), RedisReply::Bulk(big));
    let mut two = client(&proxy);
    assert_eq!(two.command(&["PING"]).unwrap(), pong());
    assert_eq!((proxy.open_connections(), proxy.total_connections()), (2, 2));
    drop(one);
    eventually("the closed connection is no longer counted", || proxy.open_connections() == 1);
    assert_eq!(two.command(&["PING"]).unwrap(), pong());
    assert_eq!(proxy.total_connections(), 2);
}

#[test]
fn reply_delay_does_not_delay_requests() {
    let (server, proxy) = server_and_proxy();
    proxy.delay(Duration::MAX, DelayScope::Replies);
    let mut client = client_with_short_timeout(&proxy);
    assert!(timed_out(client.command(&["INCR", "n"])));
    assert_eq!(server.command(&["GET", "n"]).integer(), 1);
    proxy.pass();
    assert_eq!(client.receive().unwrap(), RedisReply::Integer(1), "the delayed reply is forwarded");
}

#[test]
fn full_delay_delays_requests() {
    let (server, proxy) = server_and_proxy();
    proxy.delay(Duration::MAX, DelayScope::Both);
    let mut client = client_with_short_timeout(&proxy);
    assert!(timed_out(client.command(&["INCR", "n"])));
    assert_eq!(server.command(&["GET", "n"]), RedisReply::Nil);
    proxy.pass();
    assert_eq!(client.receive().unwrap(), RedisReply::Integer(1));
}

/// Measured by the server's clock. Twenty consecutive requests would take at least two seconds if
/// each waited for the previous one.
#[test]
fn delay_does_not_reduce_throughput() {
    let (server, proxy) = server_and_proxy();
    let now = || {
        let time = server.command(&["TIME"]);
        time.items()[0].integer() * 1_000_000 + time.items()[1].integer()
    };
    proxy.delay(SHORT_TIMEOUT, DelayScope::Both);
    let mut client = client(&proxy);
    let start = now();
    for _ in 0..20 {
        client.send(&["PING"]).unwrap();
    }
    for _ in 0..20 {
        assert_eq!(client.receive().unwrap(), pong());
    }
    let took = now() - start;
    assert!((200_000..1_500_000).contains(&took), "the round trips took {took} µs");
}

#[test]
fn black_hole_swallows_all_connections() {
    let (server, proxy) = server_and_proxy();
    let (mut old, mut idle) = (client_with_short_timeout(&proxy), client(&proxy));
    assert_eq!(old.command(&["PING"]).unwrap(), pong());
    assert_eq!(idle.command(&["PING"]).unwrap(), pong());
    proxy.blackhole();
    let mut new = client_with_short_timeout(&proxy);
    let mut new_idle = client(&proxy);
    assert!(timed_out(old.command(&["INCR", "n"])));
    assert!(timed_out(new.command(&["INCR", "n"])));
    assert_eq!(server.command(&["GET", "n"]), RedisReply::Nil, "nothing arrived");

    proxy.pass();
    for (name, client) in [("old", &mut old), ("new", &mut new)] {
        let error = client.receive().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{name}: bytes are missing");
    }
    assert_eq!(
        idle.command(&["PING"]).unwrap(),
        pong(),
        "no bytes of this connection were swallowed"
    );
    assert_eq!(
        new_idle.command(&["PING"]).unwrap(),
        pong(),
        "nor of this one, opened in the black hole"
    );
}

#[test]
fn black_hole_hides_server_death() {
    let (server, proxy) = server_and_proxy();
    let mut client = client_with_short_timeout(&proxy);
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
    proxy.blackhole();
    server.process().kill();
    assert!(timed_out(client.receive()));
    proxy.pass();
    assert!(!timed_out(client.receive()), "now the client sees the end");
}

#[test]
fn client_leaving_black_hole_is_uncounted() {
    let (_server, proxy) = server_and_proxy();
    proxy.blackhole();
    let client = client(&proxy);
    eventually("the connection is accepted", || proxy.open_connections() == 1);
    drop(client);
    eventually("the connection is closed", || proxy.open_connections() == 0);
}

#[test]
fn cut_forwards_exact_byte_count() {
    let (_server, proxy) = server_and_proxy();
    let old = TcpStream::connect(proxy.address()).unwrap();
    for ending in [ConnectionEnd::Fin, ConnectionEnd::Reset] {
        proxy.cut_after(3, ending);
        let (received, error) = read_until_closed(&TcpStream::connect(proxy.address()).unwrap());
        assert_eq!(received, b"+PO", "{ending:?}");
        assert_eq!(error, (ending == ConnectionEnd::Reset).then_some(ErrorKind::ConnectionReset));
    }
    assert_eq!(read_until_closed(&old).0, b"+PO", "open connections are cut too");
}

/// The bytes received after a PING until the connection ends, and the error it ends with.
fn read_until_closed(mut stream: &TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    stream.set_read_timeout(Some(RedisClient::TIMEOUT)).unwrap();
    io::Write::write_all(&mut stream, b"PING\r\n").unwrap();
    let mut received = Vec::new();
    let error = stream.read_to_end(&mut received).err().map(|error| error.kind());
    (received, error)
}

#[test]
fn cut_at_zero_loses_reply_only() {
    let (server, proxy) = server_and_proxy();
    proxy.cut_after(0, ConnectionEnd::Fin);
    let error = client(&proxy).command(&["INCR", "n"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(server.command(&["GET", "n"]).integer(), 1);
    eventually("the connection is no longer counted", || proxy.open_connections() == 0);
}

#[test]
fn cut_counts_bytes_since_set() {
    let (_server, proxy) = server_and_proxy();
    let mut client = client(&proxy);
    for _ in 0..3 {
        // Two replies of seven bytes would exceed a count that was not reset.
        proxy.cut_after(10, ConnectionEnd::Reset);
        assert_eq!(client.command(&["PING"]).unwrap(), pong());
    }
    assert!(client.command(&["PING"]).is_err());
}

#[test]
fn refuse_closes_port_and_connections() {
    let (_server, proxy) = server_and_proxy();
    let mut old = client(&proxy);
    assert_eq!(old.command(&["PING"]).unwrap(), pong());
    for _ in 0..3 {
        proxy.refuse();
        assert_eq!(proxy.open_connections(), 0);
        let error = TcpStream::connect(proxy.address()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        proxy.pass();
        assert_eq!(client(&proxy).command(&["PING"]).unwrap(), pong());
    }
    assert_eq!(old.receive().unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// A forked child holds copies of all sockets until it calls exec.
#[test]
fn refuse_closes_port_despite_forked_children() {
    let (_server, proxy) = server_and_proxy();
    let starting = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            while starting.load(Ordering::SeqCst) {
                assert!(Command::new("true").status().unwrap().success());
            }
        });
        let _stop = StopOnDrop(&starting);
        for _ in 0..300 {
            proxy.refuse();
            let error = TcpStream::connect(proxy.address()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            proxy.pass();
        }
    });
}

/// Stops the background thread, also if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[test]
fn dead_upstream_resets_the_connection() {
    let (server, proxy) = server_and_proxy();
    server.process().kill();
    // The reset may arrive before the client has sent anything.
    let answer =
        RedisClient::connect(proxy.address()).and_then(|mut client| client.command(&["PING"]));
    assert!(!timed_out(answer));
    eventually("the connection is no longer counted", || proxy.open_connections() == 0);
    server.restart();
    assert_eq!(client(&proxy).command(&["PING"]).unwrap(), pong());
}

#[test]
fn dropped_proxy_ends_thread_and_connections() {
    let (_server, proxy) = server_and_proxy();
    let name = format!("proxy-{}\n", proxy.port());
    let mut client = client(&proxy);
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
    assert!(threads().contains(&name));
    let address = proxy.address();
    drop(proxy);
    assert!(!threads().contains(&name));
    assert!(client.receive().is_err());
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).collect()
}
