//! Each mode of the proxy does what it says, before a real server.

#![expect(clippy::unwrap_used, reason = "what a helper did not expect fails the test")]

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_testkit::process::eventually;
use tidegate_testkit::proxy::{Delayed, Ending, Proxy};
use tidegate_testkit::redis::{Client, Reply, Server};

const SOON: Duration = Duration::from_millis(100);

fn pair() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    (server, proxy)
}

fn client(proxy: &Proxy) -> Client {
    Client::connect(proxy.address()).unwrap()
}

fn hasty(proxy: &Proxy) -> Client {
    let mut client = client(proxy);
    client.set_timeout(SOON).unwrap();
    client
}

fn timed_out(answer: io::Result<Reply>) -> bool {
    answer.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

fn pong() -> Reply {
    Reply::Simple("PONG".into())
}

#[test]
fn it_passes_and_counts() {
    let (_server, proxy) = pair();
    let mut one = client(&proxy);
    let big = vec![b'x'; 3_000_000];
    assert_eq!(one.command(&[b"ECHO".as_slice(), &big]).unwrap(), Reply::Bulk(big));
    let mut two = client(&proxy);
    assert_eq!(two.command(&["PING"]).unwrap(), pong());
    assert_eq!((proxy.open_connections(), proxy.total_connections()), (2, 2));
    drop(one);
    eventually("the closed one is no longer counted", || proxy.open_connections() == 1);
    assert_eq!(two.command(&["PING"]).unwrap(), pong());
    assert_eq!(proxy.total_connections(), 2);
}

#[test]
fn a_delay_of_replies_leaves_the_request_undelayed() {
    let (server, proxy) = pair();
    proxy.delay(Duration::MAX, Delayed::Replies);
    let mut client = hasty(&proxy);
    assert!(timed_out(client.command(&["INCR", "n"])));
    assert_eq!(server.command(&["GET", "n"]).integer(), 1);
    proxy.pass();
    assert_eq!(client.receive().unwrap(), Reply::Integer(1), "what was held is let go");
}

#[test]
fn a_delay_of_both_keeps_the_request_back() {
    let (server, proxy) = pair();
    proxy.delay(Duration::MAX, Delayed::Both);
    let mut client = hasty(&proxy);
    assert!(timed_out(client.command(&["INCR", "n"])));
    assert_eq!(server.command(&["GET", "n"]), Reply::Nil);
    proxy.pass();
    assert_eq!(client.receive().unwrap(), Reply::Integer(1));
}

/// By the server's clock. Twenty requests in a row would take two seconds if each waited for the
/// one before.
#[test]
fn a_delay_is_kept_and_holds_up_nothing_else() {
    let (server, proxy) = pair();
    let now = || {
        let time = server.command(&["TIME"]);
        time.items()[0].integer() * 1_000_000 + time.items()[1].integer()
    };
    proxy.delay(SOON, Delayed::Both);
    let mut client = client(&proxy);
    let start = now();
    for _ in 0..20 {
        client.send(&["PING"]).unwrap();
    }
    for _ in 0..20 {
        assert_eq!(client.receive().unwrap(), pong());
    }
    let took = now() - start;
    assert!((200_000..1_500_000).contains(&took), "there and back took {took} µs");
}

#[test]
fn a_black_hole_swallows_old_and_new_connections() {
    let (server, proxy) = pair();
    let (mut old, mut idle) = (hasty(&proxy), client(&proxy));
    assert_eq!(old.command(&["PING"]).unwrap(), pong());
    assert_eq!(idle.command(&["PING"]).unwrap(), pong());
    proxy.blackhole();
    let mut new = hasty(&proxy);
    let mut new_idle = client(&proxy);
    assert!(timed_out(old.command(&["INCR", "n"])));
    assert!(timed_out(new.command(&["INCR", "n"])));
    assert_eq!(server.command(&["GET", "n"]), Reply::Nil, "nothing arrived");

    proxy.pass();
    for (name, client) in [("old", &mut old), ("new", &mut new)] {
        let error = client.receive().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{name}: bytes are missing");
    }
    assert_eq!(idle.command(&["PING"]).unwrap(), pong(), "nothing of it was swallowed");
    assert_eq!(new_idle.command(&["PING"]).unwrap(), pong(), "nor of this one");
}

#[test]
fn a_black_hole_hides_the_servers_death() {
    let (server, proxy) = pair();
    let mut client = hasty(&proxy);
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
    proxy.blackhole();
    server.process().kill();
    assert!(timed_out(client.receive()));
    proxy.pass();
    assert!(!timed_out(client.receive()), "now it shows");
}

#[test]
fn a_client_that_leaves_a_black_hole_is_not_counted() {
    let (_server, proxy) = pair();
    proxy.blackhole();
    let client = client(&proxy);
    eventually("it is accepted", || proxy.open_connections() == 1);
    drop(client);
    eventually("it is gone", || proxy.open_connections() == 0);
}

#[test]
fn a_cut_lets_so_many_bytes_through() {
    let (_server, proxy) = pair();
    let old = TcpStream::connect(proxy.address()).unwrap();
    for ending in [Ending::Fin, Ending::Reset] {
        proxy.cut_after(3, ending);
        let (heard, error) = hear(&TcpStream::connect(proxy.address()).unwrap());
        assert_eq!(heard, b"+PO", "{ending:?}");
        assert_eq!(error, (ending == Ending::Reset).then_some(ErrorKind::ConnectionReset));
    }
    assert_eq!(hear(&old).0, b"+PO", "open ones are cut too");
}

/// What comes back for a PING until the connection ends, and how it ends.
fn hear(mut stream: &TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    stream.set_read_timeout(Some(Client::TIMEOUT)).unwrap();
    io::Write::write_all(&mut stream, b"PING\r\n").unwrap();
    let mut heard = Vec::new();
    let error = stream.read_to_end(&mut heard).err().map(|error| error.kind());
    (heard, error)
}

#[test]
fn a_cut_after_nothing_loses_the_answer_of_what_was_done() {
    let (server, proxy) = pair();
    proxy.cut_after(0, Ending::Fin);
    let error = client(&proxy).command(&["INCR", "n"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(server.command(&["GET", "n"]).integer(), 1);
    eventually("it is no longer counted", || proxy.open_connections() == 0);
}

#[test]
fn a_cut_counts_from_when_it_was_set() {
    let (_server, proxy) = pair();
    let mut client = client(&proxy);
    for _ in 0..3 {
        // Two replies of seven bytes would not pass a count that went on.
        proxy.cut_after(10, Ending::Reset);
        assert_eq!(client.command(&["PING"]).unwrap(), pong());
    }
    assert!(client.command(&["PING"]).is_err());
}

#[test]
fn refusing_closes_the_port_and_what_is_open() {
    let (_server, proxy) = pair();
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

/// A child has copies of all sockets until it becomes its own program.
#[test]
fn refusing_closes_the_port_while_others_start_processes() {
    let (_server, proxy) = pair();
    let starting = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            while starting.load(Ordering::SeqCst) {
                assert!(Command::new("true").status().unwrap().success());
            }
        });
        let _stop = Stop(&starting);
        for _ in 0..300 {
            proxy.refuse();
            let error = TcpStream::connect(proxy.address()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            proxy.pass();
        }
    });
}

/// Ends the thread beside a test, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[test]
fn nobody_behind_it_is_a_reset() {
    let (server, proxy) = pair();
    server.process().kill();
    // It may come before the client has even said anything.
    let answer = Client::connect(proxy.address()).and_then(|mut client| client.command(&["PING"]));
    assert!(!timed_out(answer));
    eventually("it is no longer counted", || proxy.open_connections() == 0);
    server.restart();
    assert_eq!(client(&proxy).command(&["PING"]).unwrap(), pong());
}

#[test]
fn dropping_it_ends_its_thread_and_its_connections() {
    let (_server, proxy) = pair();
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
