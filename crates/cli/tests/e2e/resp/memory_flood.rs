//! Floods of distinct limits and keys: memory stays bounded.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use super::RULES;
use crate::support::ServerProcess;

/// Resident memory of the process in KiB.
fn resident_kib(server: &ServerProcess) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Sends commands in one pipeline and counts the replies that begin with `prefix`.
fn send_commands(server: &ServerProcess, commands: String, prefix: &str) -> usize {
    let mut tcp = TcpStream::connect(&server.resp).unwrap();
    let mut sending = tcp.try_clone().unwrap();
    let sender = thread::spawn(move || {
        sending.write_all(commands.as_bytes()).unwrap();
        sending.write_all(b"QUIT\r\n").unwrap();
    });
    let mut replies = String::new();
    tcp.read_to_string(&mut replies).unwrap();
    sender.join().unwrap();
    assert!(replies.ends_with("+OK\r\n"));
    replies.matches(prefix).count()
}

#[test]
fn distinct_limits_use_bounded_memory() {
    let server = ServerProcess::start(RULES);
    let numbers = |from: u32, to: u32| -> String {
        (from..to).map(|count| format!("CL.THROTTLE k 15 {count} 60\r\n")).collect()
    };
    assert_eq!(
        send_commands(&server, numbers(1, 110_001), "-ERR callers have used more than 10000"),
        100_000
    );
    let before = resident_kib(&server);
    assert_eq!(
        send_commands(&server, numbers(110_001, 410_001), "-ERR callers have used more than 10000"),
        300_000
    );
    let after = resident_kib(&server);
    // 300 000 policies and scales would be about 90 MiB.
    assert!(after < before + 8 * 1024, "{before} KiB, then {after} KiB");
    assert_eq!(
        send_commands(&server, "CL.THROTTLE k 15 77 60\r\n".to_owned(), "*5\r\n"),
        1,
        "a known limit is still accepted"
    );
}

#[test]
fn distinct_keys_respect_memory_limit() {
    let server = ServerProcess::start(&[RULES, &["--memory-limit", "4MiB"]].concat());
    let keys = |from: u32, to: u32| -> String {
        (from..to).map(|key| format!("CL.THROTTLE key-{key} 15 1 3600\r\n")).collect()
    };
    send_commands(&server, keys(0, 100_000), "*5\r\n:0");
    let before = resident_kib(&server);
    send_commands(&server, keys(100_000, 500_000), "*5\r\n");
    let after = resident_kib(&server);
    assert!(after < before + 8 * 1024, "{before} KiB, then {after} KiB");
}
