//! Precedence of settings: flags override the environment, which overrides the file.

use serde_json::json;

use crate::support::{
    ServerProcess, TestFolder, run_tidegate, tidegate_command, utf8_text, wait_for,
};

const DOCUMENT: &str = "server: { reset_style: delta, http: 127.0.0.1:0 }\n\
    rules: [{ id: all, limit: 100/min }]\n";

/// Whether `X-RateLimit-Reset` is a point in time or a duration.
fn reset_style(server: &ServerProcess) -> &'static str {
    let response = server.client().check(&json!({ "ip": "192.0.2.1" }));
    let reset: u64 = response.header("x-ratelimit-reset").unwrap().parse().unwrap();
    if reset > 1_000_000_000 { "epoch" } else { "delta" }
}

fn start_server(file: &std::path::Path, env: Option<&str>, flag: Option<&str>) -> ServerProcess {
    let mut command = tidegate_command();
    command.arg("serve").arg("--config").arg(file);
    command.envs(env.map(|style| ("TIDEGATE_RESET_STYLE", style)));
    command.args(flag.map(|style| format!("--reset-style={style}")));
    ServerProcess::spawn(command)
}

#[test]
fn flag_overrides_environment_overrides_file() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", DOCUMENT);
    assert_eq!(reset_style(&start_server(&file, None, None)), "delta", "the file");
    assert_eq!(
        reset_style(&start_server(&file, Some("epoch"), None)),
        "epoch",
        "environment over file"
    );
    assert_eq!(
        reset_style(&start_server(&file, Some("epoch"), Some("delta"))),
        "delta",
        "flag over both"
    );
    assert_eq!(reset_style(&start_server(&file, None, Some("epoch"))), "epoch", "flag over file");
}

/// The rate-limit headers of a refusal, by name.
fn refusal_headers(server: &ServerProcess) -> Vec<(String, String)> {
    let mut client = server.client();
    client.check(&json!({ "ip": "192.0.2.1" }));
    let response = client.check(&json!({ "ip": "192.0.2.1" }));
    assert_eq!(response.status, 429);
    let names = [
        "x-ratelimit-limit",
        "ratelimit-limit",
        "ratelimit",
        "retry-after",
        "access-control-expose-headers",
    ];
    let value = |name: &str| Some((name.to_owned(), response.header(name)?.to_owned()));
    names.into_iter().filter_map(value).collect()
}

#[test]
fn header_settings_control_response_headers() {
    let folder = TestFolder::new();
    let rules = "rules: [{ id: one, limit: 1/h }]";
    let section = "server: { header_style: legacy, expose_headers: true, retry_jitter: 10s }";
    let file = folder.write("rules.yaml", format!("{section}\n{rules}"));
    let headers_with = |args: &[&str]| refusal_headers(&ServerProcess::with_config(&file, args));
    let from_file = headers_with(&[]);
    let names: Vec<_> = from_file.iter().map(|(name, _)| name.as_str()).collect();
    let all = ["x-ratelimit-limit", "ratelimit-limit", "retry-after"];
    assert_eq!(names, [&all[..], &["access-control-expose-headers"]].concat(), "{from_file:?}");
    let wait: u64 = from_file[2].1.parse().unwrap();
    assert!((3_600..=3_610).contains(&wait), "{wait}");
    let from_flags = headers_with(&["--header-style", "none", "--expose-headers=false"]);
    assert_eq!(from_flags.len(), 1, "{from_flags:?}");
    let bare = headers_with(&["--header-style=ietf", "--expose-headers"]);
    assert_eq!(bare[0].0, "ratelimit");
    assert_eq!(bare[2].1, "ratelimit-policy, ratelimit, retry-after, retry-after-ms");
}

#[test]
fn environment_alone_configures_the_server() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", "rules: [{ id: from-file, limit: 5/h }]");
    let mut command = tidegate_command();
    command.arg("serve").env("TIDEGATE_CONFIG", file).env("TIDEGATE_HTTP", "127.0.0.1:0");
    command.env("TIDEGATE_LIMIT", "7/h by ip; 9/m by user_id").env("TIDEGATE_LOG", "json");
    command.env("TIDEGATE_HEADER_STYLE", "x").env("TIDEGATE_RETRY_JITTER", "5s");
    command
        .env("TIDEGATE_EXPOSE_HEADERS", "1")
        .env("TIDEGATE_SNAPSHOT", folder.path("counters.snap"));
    let server = ServerProcess::spawn(command);
    let response = server.client().check(&json!({ "ip": "192.0.2.1" }));
    let limits: Vec<_> = response.body["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["limit"].clone())
        .collect();
    assert_eq!(limits, [5, 7, 9], "{response:?}");
    let exposed = "x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset";
    assert_eq!(response.header("access-control-expose-headers"), Some(exposed));
    for line in server.log().lines() {
        let _: serde_json::Value = serde_json::from_str(line).unwrap();
    }
    let snapshot = folder.path("counters.snap");
    server.stop();
    assert!(snapshot.exists());
}

#[test]
fn document_paths_are_relative_to_document() {
    let folder = TestFolder::new();
    let document = "server: { snapshot: counters.snap }\nrules: [{ id: all, limit: 5/h }]";
    let file = folder.write("rules.yaml", document);
    let server = ServerProcess::with_config(&file, &[]);
    server.stop();
    assert!(folder.path("counters.snap").exists());
}

#[test]
fn missing_or_short_secret_fails_startup() {
    let folder = TestFolder::new();
    let short = folder.write("short", "hunter2\n");
    for flag in ["--key-secret-file", "--admin-token-file"] {
        for (file, words) in
            [(short.as_path(), "at least 16"), (&folder.path("missing"), "cannot read")]
        {
            let output =
                run_tidegate(&["serve", "--http", "127.0.0.1:0", flag, file.to_str().unwrap()]);
            assert_eq!(output.status.code(), Some(3), "{flag}");
            assert!(utf8_text(&output.stderr).contains(words), "{}", utf8_text(&output.stderr));
            assert!(!utf8_text(&output.stderr).contains("hunter2"), "the secret is not shown");
        }
    }
}

/// Number of threads whose name is `name`, apart from a trailing number.
fn count_threads(server: &ServerProcess, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|known| known.trim_end_matches(|c: char| !c.is_alphabetic()) == name).count()
}

#[test]
fn thread_settings_size_the_worker_pools() {
    let folder = TestFolder::new();
    let section = "server: { gateway_threads: 3, api_threads: 2, upstream: http://127.0.0.1:9 }";
    let file = folder.write("rules.yaml", format!("{section}\nrules: []"));
    for (args, expected) in
        [(&[][..], (3, 2)), (&["--gateway-threads", "1", "--api-threads", "4"], (1, 4))]
    {
        let server =
            ServerProcess::with_config(&file, &[&["--gateway", "127.0.0.1:0"], args].concat());
        // A thread sets its name after it has started.
        wait_for(&format!("the threads {expected:?}"), || {
            ((count_threads(&server, "gateway"), count_threads(&server, "api")) == expected)
                .then_some(())
        });
    }
    for invalid in ["0", "1025", "many"] {
        let output = run_tidegate(&["serve", "--gateway-threads", invalid]);
        assert_eq!(output.status.code(), Some(2), "{invalid}");
        assert!(
            utf8_text(&output.stderr).contains("--gateway-threads"),
            "{}",
            utf8_text(&output.stderr)
        );
    }
}
