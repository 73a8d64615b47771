//! redis-cli and redis-benchmark, from Debian's redis-tools.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::{RULES, resp_port, run_redis_cli};
use crate::support::{ServerProcess, TestFolder, utf8_text};

#[test]
fn redis_cli_commands_return_expected_replies() {
    let server = ServerProcess::start(RULES);
    let cli = |args: &[&str]| run_redis_cli(&server, args);
    assert_eq!(cli(&["PING"]), "PONG");
    assert_eq!(cli(&["CL.THROTTLE", "user", "15", "30", "60"]), "0\n16\n15\n-1\n2");
    assert_eq!(cli(&["THROTTLE", "other", "15", "30", "60"]), "1\n15\n14\n2\n0");
    let list = cli(&["--no-raw", "TIDEGATE.CHECK", "api_key", "k"]);
    let begin = " 1) \"allowed\"\n 2) (integer) 1\n 3) \"rule\"\n 4) \"by-api_key-1h-";
    assert!(list.starts_with(begin), "{list}");
    let map = cli(&["-3", "--no-raw", "TIDEGATE.CHECK", "api_key", "k", "COST", "11"]);
    let lines: Vec<&str> = map.lines().collect();
    assert_eq!(lines[0], "1# \"allowed\" => (false)", "{map}");
    assert_eq!(lines[3], "4# \"remaining\" => (integer) 9", "{map}");
    assert_eq!(lines[5], "6# \"retry_after_ms\" => (nil)", "{map}");
    assert!(cli(&["GET", "x"]).starts_with("ERR unknown command 'GET'"));
    assert!(cli(&["INFO"]).contains("tidegate_version:"));
}

/// With piped input, redis-cli sends `COMMAND DOCS` first, as in an interactive session.
#[test]
fn redis_cli_reads_commands_from_a_pipe() {
    let server = ServerProcess::start(RULES);
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", resp_port(&server)]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = cli.spawn().unwrap();
    let commands = b"PING\nCL.THROTTLE a 0 1 60\nCL.THROTTLE a 0 1 60\n";
    child.stdin.take().unwrap().write_all(commands).unwrap();
    let output = utf8_text(&child.wait_with_output().unwrap().stdout);
    assert_eq!(output, "PONG\n0\n1\n0\n-1\n60\n1\n1\n0\n60\n60\n");
}

#[test]
fn redis_cli_sends_token_as_password() {
    let folder = TestFolder::new();
    let token = folder.write("token", "0123456789abcdef\n");
    let server =
        ServerProcess::start(&[RULES, &["--admin-token-file", token.to_str().unwrap()]].concat());
    let right = ["--no-auth-warning", "-a", "0123456789abcdef", "PING"];
    assert_eq!(run_redis_cli(&server, &right), "PONG");
    let wrong = run_redis_cli(&server, &["AUTH", "wrong"]);
    assert!(wrong.starts_with("WRONGPASS"), "{wrong}");
}

/// redis-benchmark, with many connections and pipelines: exactly the limit is admitted.
#[test]
fn redis_benchmark_admits_exactly_the_limit() {
    let server = ServerProcess::start(RULES);
    let run = |args: &[&str]| {
        let mut command = Command::new("redis-benchmark");
        let output = command.args(["-p", resp_port(&server), "-q"]).args(args).output().unwrap();
        let (report, warnings) = (utf8_text(&output.stdout), utf8_text(&output.stderr));
        assert!(output.status.success() && warnings.is_empty(), "{report}\n{warnings}");
        assert!(report.contains("requests per second"), "{report}");
    };
    run(&["-n", "2000", "-t", "ping"]);
    run(&["-n", "20000", "-c", "50", "-P", "16", "CL.THROTTLE", "all", "19998", "1", "3600"]);
    // The bucket refills one request per hour, so none was restored meanwhile.
    let peek = run_redis_cli(&server, &["CL.THROTTLE", "all", "19998", "1", "3600", "0"]);
    assert_eq!(peek.lines().take(3).collect::<Vec<_>>(), ["0", "19999", "0"]);
    run(&[
        "-n",
        "5000",
        "-c",
        "20",
        "-3",
        "-P",
        "4",
        "CL.THROTTLE",
        "k:__rand_int__",
        "5",
        "1",
        "60",
    ]);
}
