//! `tidegate top` in a real terminal (tmux) with a real server: what it shows, what its keys do,
//! and that it restores the terminal.

mod one_shot;

use std::path::Path;
use std::process::Command;

use serde_json::json;
use tidegate_testkit::port::ReservedPort;
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::tmux::TmuxSession;

use crate::admin_cli::AdminCliFixture;
use crate::support::{ServerProcess, run_curl, tidegate_command, wait_for};

/// No quota is restored within a test; `writes` admits two requests.
const RULES: &str = r#"
rules:
  - { id: writes, match: { method: POST }, key_by: ip, limit: 2/30d using fixed_window }
  - { id: per-user, match: { method: GET }, key_by: user_id, limit: 1000/30d using fixed_window }
  - { id: unused, match: { method: DELETE }, key_by: ip, limit: 5/h }
"#;

/// Sends `times` writes of one client, of which two pass.
fn send_writes(server: &ServerProcess, times: usize) {
    let mut client = server.client();
    let facts = json!({ "ip": "203.0.113.7", "method": "POST", "path": "/x" });
    (0..times).for_each(|_| _ = client.check(&facts));
}

/// Sends `times` reads of a user, which all pass.
fn send_reads(server: &ServerProcess, user: &str, times: usize) {
    let mut client = server.client();
    let facts = json!({ "user_id": user, "method": "GET", "path": "/x" });
    (0..times).for_each(|_| assert_eq!(client.check(&facts).status, 200));
}

/// Starts the program in a terminal and waits for its first screen.
fn start_top(tmux: &TmuxSession, url: &str) {
    tmux.run(&[tidegate_command().get_program().to_str().unwrap(), "top", "--admin", url]);
    tmux.wait_for_text("since the start");
}

fn start_server_and_top(columns: u16, rows: u16) -> (AdminCliFixture, TmuxSession) {
    let fixture = AdminCliFixture::start_with(RULES, &[]);
    let tmux = TmuxSession::start(columns, rows);
    start_top(&tmux, &fixture.url);
    (fixture, tmux)
}

/// The cells of a rule's row.
fn rule_row<'s>(screen: &'s str, rule: &str) -> Vec<&'s str> {
    let line = screen.lines().find(|line| line.starts_with(rule));
    line.map(|line| line.split_whitespace().collect()).unwrap_or_default()
}

/// The rules in the order of their rows.
fn rule_order(screen: &str) -> Vec<&str> {
    let names = ["writes", "per-user", "unused"];
    screen
        .lines()
        .filter_map(|line| names.into_iter().find(|name| line.starts_with(name)))
        .collect()
}

/// The sum of a metric family's samples with these labels.
fn sum_metric(fixture: &AdminCliFixture, family: &str, labels: &[&str]) -> u64 {
    let page = run_curl(&[&format!("{}/metrics", fixture.url)]).body;
    let has = |line: &&str| labels.iter().all(|label| line.contains(label));
    let lines = page.lines().filter(|line| line.starts_with(family)).filter(has);
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn live_numbers_agree_with_metrics() {
    let (fixture, tmux) = start_server_and_top(120, 34);
    tmux.wait_for_text("0 since the start");
    for times in [12, 28] {
        send_writes(&fixture.server, times);
        let decided = sum_metric(&fixture, "tidegate_decisions_total", &[]);
        let verdicts = |verdict: &str| {
            let verdict = format!("verdict=\"{verdict}\"");
            sum_metric(&fixture, "tidegate_rule_verdicts_total", &["rule=\"writes\"", &verdict])
        };
        let (passed, refused) = (verdicts("allow"), verdicts("deny"));
        assert_eq!(passed, 2);
        assert_eq!(decided, passed + refused);
        let share = (refused * 1_000 / decided + 5) / 10;
        let screen = tmux.wait_until("the numbers of the metrics", |screen| {
            let row = rule_row(screen, "writes");
            screen.contains(&format!("{decided} since the start"))
                && row.get(4).is_some_and(|shown| *shown == format!("{share}%"))
        });
        // One client accounts for all refusals and all decisions.
        tmux.wait_until("the keys", |screen| {
            let keys = |count: u64| screen.contains(&format!(" {count} ip=203.0.113.7"));
            keys(refused) && keys(decided)
        });
        let is_nonzero = |rate: &&str| rate.parse::<f64>().unwrap() > 0.0;
        assert!(rule_row(&screen, "writes")[2..4].iter().all(is_nonzero), "{screen}");
        assert_eq!(rule_row(&screen, "unused")[2..5], ["0", "0", "–"], "{screen}");
        assert!(screen.contains("rules version 1, 3 rules"), "{screen}");
        assert!(screen.contains(&format!("process {}", fixture.server.pid())), "{screen}");
    }
}

#[test]
fn leased_rule_shows_mode_and_local_share() {
    let redis = RedisServer::start();
    let rules = RULES.replacen("30d using fixed_window }", "30d, consistency: leased }", 1);
    let rules = rules.replace("limit: 2/", "limit: 1000/");
    let (url, deadline) = (redis.url(), ["--store-deadline", "2s"]);
    let fixture =
        AdminCliFixture::start_with(&rules, &[&["--store", &*url], &deadline[..]].concat());
    let tmux = TmuxSession::start(80, 24);
    start_top(&tmux, &fixture.url);
    send_writes(&fixture.server, 80);
    // At least the first eight requests are charged at the store, one by one.
    let screen = tmux.wait_until("the share of local decisions", |screen| {
        let share = screen.split_once("local ").and_then(|(_, rest)| rest.split_once('%'));
        share.is_some_and(|(share, _)| share.parse::<u32>().is_ok_and(|share| share >= 30))
            && screen.contains("80 since the start")
    });
    assert!(screen.contains("COUNTED"), "{screen}");
    assert_eq!(rule_row(&screen, "writes")[..3], ["writes", "enforce", "leased"], "{screen}");
    assert_eq!(rule_row(&screen, "unused")[..3], ["unused", "enforce", "exact"], "{screen}");
    let writes = fixture.run_json(&["top"])["rules"].clone();
    let writes = writes.as_array().unwrap().iter().find(|rule| rule["id"] == "writes").cloned();
    assert_eq!(writes.unwrap()["consistency"], "leased");
}

#[test]
fn keys_sort_filter_pause_and_show_help() {
    let (fixture, tmux) = start_server_and_top(120, 34);
    send_writes(&fixture.server, 20);
    send_reads(&fixture.server, "ann", 50);
    tmux.wait_until("the busiest rule first", |screen| {
        rule_order(screen) == ["per-user", "writes", "unused"]
    });
    tmux.type_in("s");
    let refused = tmux.wait_until("the most refused rule first", |screen| {
        rule_order(screen) == ["writes", "per-user", "unused"]
    });
    assert!(refused.contains("REFUSED/S▼"), "{refused}");
    tmux.type_in("<<");
    tmux.wait_until("order by name", |screen| {
        rule_order(screen) == ["per-user", "unused", "writes"]
    });
    tmux.type_in("r");
    tmux.wait_until("reverse order by name", |screen| {
        rule_order(screen) == ["writes", "unused", "per-user"]
    });

    tmux.type_in("/USER");
    tmux.wait_until("the filtered rule", |screen| {
        rule_order(screen) == ["per-user"]
            && screen.contains("/USER")
            && !screen.contains("ip=203.0.113.7")
    });
    tmux.press("Enter");
    tmux.wait_for_text("filter: USER");
    tmux.press("Escape");
    tmux.wait_until("all rules again", |screen| {
        rule_order(screen).len() == 3 && !screen.contains("filter:")
    });

    tmux.type_in("?");
    tmux.wait_for_text("any key closes this help");
    tmux.type_in("x");
    tmux.wait_until("the help to close", |screen| !screen.contains("any key closes this help"));

    tmux.type_in("p");
    tmux.wait_for_text("PAUSED");
    let paused = tmux.screen();
    send_reads(&fixture.server, "ann", 7);
    // A second client of the event stream shows that the event was sent.
    let is_sent = || fixture.run_json(&["top"])["decisions"] == 77;
    wait_for("77 decisions", || is_sent().then_some(()));
    assert_eq!(tmux.screen(), paused);
    tmux.type_in("p");
    tmux.wait_for_text("77 since the start");
}

#[test]
fn resized_terminal_is_redrawn_to_fit() {
    let (fixture, tmux) = start_server_and_top(120, 34);
    send_writes(&fixture.server, 5);
    tmux.wait_for_text("LAST MINUTE");
    tmux.resize(40, 12);
    let screen = tmux.wait_until("the reduced layout", |screen| {
        let is_reduced = !screen.contains("LAST MINUTE") && rule_row(screen, "writes").len() == 3;
        is_reduced && screen.contains("q quit")
    });
    assert_eq!(screen.lines().count(), 12, "{screen}");
    for (columns, rows) in [(1, 1), (10, 3), (200, 50)] {
        tmux.resize(columns, rows);
    }
    tmux.wait_for_text("LAST MINUTE");
    tmux.wait_for_text("5 since the start");
}

#[test]
fn small_terminal_shows_rules() {
    let (fixture, tmux) = (AdminCliFixture::start_with(RULES, &[]), TmuxSession::start(40, 12));
    tmux.run(&[tidegate_command().get_program().to_str().unwrap(), "top", "--admin", &fixture.url]);
    tmux.wait_for_text("per-user");
    tmux.type_in("q");
    tmux.wait_for_text("ready$");
}

#[test]
fn lost_server_is_shown_until_reconnect() {
    let fixture = AdminCliFixture::start();
    let port = ReservedPort::reserve();
    let at = port.address().to_string();
    let file = fixture.folder.write("other.yaml", RULES);
    let start = || ServerProcess::with_config(&file, &["--admin", &at]);
    let (server, tmux) = (start(), TmuxSession::start(120, 34));
    start_top(&tmux, &format!("http://{at}"));
    send_writes(&server, 7);
    tmux.wait_for_text("7 since the start");
    let before = format!("process {}", server.pid());
    // A connected `top` does not keep the server from shutting down.
    server.stop();
    let lost = tmux.wait_until("the lost connection", |screen| screen.starts_with("LOST: "));
    assert!(lost.contains("7 since the start") && lost.contains(&before), "{lost}");
    let server = start();
    send_writes(&server, 3);
    let reconnected =
        tmux.wait_until("the reconnect", |screen| screen.contains(" 3 since the start"));
    let process = format!("process {}", server.pid());
    assert!(!reconnected.contains("LOST") && reconnected.contains(&process), "{reconnected}");
    tmux.type_in("q");
    tmux.wait_for_text("ready$");
}

#[test]
fn terminal_is_restored_on_exit() {
    let (fixture, tmux) = (AdminCliFixture::start_with(RULES, &[]), TmuxSession::start(120, 34));
    let state = || [tmux.format_value("alternate_on"), tmux.format_value("cursor_flag")];
    let (pid, program) = (fixture.folder.path("pid"), tidegate_command());
    let program = program.get_program().to_str().unwrap();
    let top = format!("echo $$ >{}; exec {program} top --admin {}", pid.display(), fixture.url);
    for leave in ["q", "C-c", "TERM"] {
        let before = format!("text before {leave}");
        tmux.run(&["echo", &before]);
        tmux.wait_for_text(&format!("\n{before}\nready$"));
        tmux.run(&["sh", "-c", &top]);
        tmux.wait_for_text("since the start");
        assert_eq!(state(), ["1", "0"], "the alternate screen, and no cursor");
        assert!(!tmux.screen().contains(&before));
        match leave {
            "TERM" => terminate(&pid),
            key => tmux.press(key),
        }
        tmux.wait_until("the previous screen and the prompt", |screen| {
            screen.contains(&format!("\n{before}\n")) && screen.trim_end().ends_with("ready$")
        });
        assert_eq!(state(), ["0", "1"], "after {leave}");
        // Echo and line mode are on again: the terminal is no longer raw.
        tmux.run(&["sh", "-c", &format!("echo {leave}; stty -a | grep -o -w -e icanon -e echo")]);
        tmux.wait_for_text(&format!("\n{leave}\nicanon\necho\nready$"));
    }
}

/// Sends SIGTERM to the process whose ID is in a file.
fn terminate(pid_file: &Path) {
    let kill = format!("kill -TERM $(cat {})", pid_file.display());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn hostile_key_is_rendered_as_text() {
    let (fixture, tmux) = start_server_and_top(160, 40);
    let title = tmux.format_value("pane_title");
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}<b>\r\n";
    send_reads(&fixture.server, hostile, 3);
    send_reads(&fixture.server, "\u{65e5}\u{672c}", 2);
    let screen = tmux.wait_until("both keys", |screen| {
        screen.contains("user_id=\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\u{9b}31m")
            && screen.contains("日本")
    });
    assert!(!screen.contains('\u{202e}') && screen.contains("since the start"), "{screen}");
    assert_eq!(tmux.format_value("pane_title"), title);
    // The rule names are aligned in one column after keys of any width.
    let column_after = |words: &str| {
        let line = screen.lines().find(|line| line.contains(words)).unwrap();
        let before = line.split_once("per-user").unwrap().0;
        before.chars().map(|c| if c.is_ascii() || c == '…' { 1 } else { 2 }).sum::<usize>()
    };
    assert_eq!(column_after("owned"), column_after("日本"), "{screen}");
}

/// Without a controlling terminal (`setsid`), the program gets no SIGHUP when its terminal closes,
/// and crossterm would keep reading forever.
#[test]
fn top_exits_when_its_terminal_closes() {
    for setsid in [&[][..], &["setsid", "--wait"]] {
        let fixture = AdminCliFixture::start_with(RULES, &[]);
        let tmux = TmuxSession::start(120, 34);
        let program = tidegate_command();
        let top = [program.get_program().to_str().unwrap(), "top", "--admin", &fixture.url];
        tmux.run(&[setsid, &top].concat());
        tmux.wait_for_text("since the start");
        let pids = find_pids(&format!("top --admin {}", fixture.url));
        assert!(!pids.is_empty());
        drop(tmux);
        let is_running = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        wait_for("the program to exit", || (!pids.iter().any(is_running)).then_some(()));
    }
}

/// Process IDs of commands whose command line contains a text.
fn find_pids(text: &str) -> Vec<u32> {
    let found = Command::new("pgrep").args(["-f", text]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    found.lines().map(|pid| pid.parse().unwrap()).collect()
}
