//! The metrics page is valid for Prometheus, agrees with the documentation, and follows reloads.

use tidegate_testkit::redis::RedisServer as Redis;

use super::{RULES, fetch_metrics, metric_families, run_promtool, sample_value, send_writes};
use crate::support::{ServerProcess, TestFolder, run_curl, wait_for};

fn start_server(folder: &TestFolder, args: &[&str]) -> ServerProcess {
    let rules = folder.write("rules.yaml", RULES);
    ServerProcess::with_config(&rules, &[&["--admin", "127.0.0.1:0"], args].concat())
}

#[track_caller]
fn assert_promtool_accepts(page: &str) {
    assert_eq!(run_promtool(&["check", "metrics"], page), (true, String::new()), "{page}");
}

#[test]
fn promtool_accepts_metrics_on_either_store() {
    let (folder, redis) = (TestFolder::new(), Redis::start());
    let url = redis.url();
    for args in [&[][..], &["--store", &url]] {
        let server = start_server(&folder, args);
        assert_promtool_accepts(&fetch_metrics(&server));
        send_writes(&server, 5);
        let metrics = fetch_metrics(&server);
        assert_promtool_accepts(&metrics);
        assert_eq!(
            sample_value(
                &metrics,
                r#"tidegate_requests_total{endpoint="POST /api/*",outcome="refused"}"#
            ),
            3.0
        );
    }
}

#[test]
fn promtool_rejects_invalid_metrics() {
    let (valid, error) = run_promtool(&["check", "metrics"], "# TYPE a_total gauge\na_total 1\n");
    assert!(!valid && error.contains("a_total"), "{error}");
}

#[test]
fn openmetrics_has_same_samples_and_eof() {
    let folder = TestFolder::new();
    let server = start_server(&folder, &[]);
    send_writes(&server, 5);
    wait_for("the violations to be written", || {
        let waiting = sample_value(&fetch_metrics(&server), "tidegate_violations_waiting");
        (waiting == 0.0).then_some(())
    });
    let accept = "Accept: application/openmetrics-text; version=1.0.0";
    let url = format!("http://{}/metrics", server.admin_address());
    let open = run_curl(&["-H", accept, &url]).body;
    assert!(open.ends_with("# EOF\n"), "{open}");
    let samples = |page: &str| -> Vec<String> {
        page.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(samples(&open), samples(&fetch_metrics(&server)));
}

/// The documentation lists every metric and no others.
#[test]
fn metrics_and_documentation_agree() {
    let (folder, redis) = (TestFolder::new(), Redis::start());
    let mut families = metric_families(&fetch_metrics(&start_server(&folder, &[])));
    families.extend(metric_families(&fetch_metrics(&start_server(
        &folder,
        &["--store", &redis.url()],
    ))));
    // No collector listens there, but the metrics about traces are exposed anyway.
    let collector = ["--otlp", "http://127.0.0.1:9"];
    let traced = fetch_metrics(&start_server(&folder, &collector));
    assert_promtool_accepts(&traced);
    families.extend(metric_families(&traced));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with("Metrics\n")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let mut named: Vec<&str> = cells
        .flat_map(|cell| cell.split('`'))
        .filter(|word| word.starts_with("tidegate_"))
        .collect();
    named.iter_mut().for_each(|name| *name = name.split('{').next().unwrap_or(name));
    named.sort_unstable();
    assert_eq!(named, families.keys().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn reload_metrics_show_outcome_and_fingerprint() {
    let folder = TestFolder::new();
    let server = start_server(&folder, &[]);
    let metrics = fetch_metrics(&server);
    let (ok, failed) = (
        r#"tidegate_rules_reloads_total{outcome="ok"}"#,
        r#"tidegate_rules_reloads_total{outcome="failed"}"#,
    );
    assert_eq!((sample_value(&metrics, ok), sample_value(&metrics, failed)), (1.0, 0.0));
    let before = sample_value(&metrics, "tidegate_rules_fingerprint");
    folder.replace_atomically("rules.yaml", RULES.replace("2/30d", "3/30d"));
    wait_for("the new rules", || (sample_value(&fetch_metrics(&server), ok) == 2.0).then_some(()));
    assert_ne!(sample_value(&fetch_metrics(&server), "tidegate_rules_fingerprint"), before);
    folder.replace_atomically("rules.yaml", "rules: [{ id: broken }]");
    wait_for("the failed reload", || {
        (sample_value(&fetch_metrics(&server), failed) == 1.0).then_some(())
    });
    let metrics = fetch_metrics(&server);
    assert_eq!(
        (sample_value(&metrics, ok), sample_value(&metrics, "tidegate_rules_degraded")),
        (2.0, 1.0)
    );
}

#[test]
fn deleted_rule_series_disappear() {
    let folder = TestFolder::new();
    let server = start_server(&folder, &[]);
    send_writes(&server, 3);
    assert!(fetch_metrics(&server).contains("rule=\"watched\""));
    folder.replace_atomically("rules.yaml", RULES.lines().take(3).collect::<Vec<_>>().join("\n"));
    let metrics = wait_for("the new rules", || {
        let metrics = fetch_metrics(&server);
        (!metrics.contains("rule=\"watched\"")).then_some(metrics)
    });
    let verdicts = "tidegate_rule_verdicts_total{rule=\"writes\",endpoint=\"POST /api/*\",";
    assert_eq!(
        sample_value(&metrics, &format!("{verdicts}mode=\"enforce\",verdict=\"deny\"}}")),
        1.0
    );
}

#[test]
fn throttle_commands_count_as_resp_decisions() {
    let server = ServerProcess::start(&["--admin", "127.0.0.1:0"]);
    let port = server.resp.rsplit_once(':').unwrap().1;
    for _ in 0..3 {
        let mut cli = std::process::Command::new("redis-cli");
        assert!(cli.args(["-p", port, "CL.THROTTLE", "k", "0", "1", "3600"]).output().is_ok());
    }
    let metrics = fetch_metrics(&server);
    let count = |outcome: &str| {
        let series = "tidegate_decisions_total{api=\"resp\",answered_by=\"store\"";
        sample_value(&metrics, &format!("{series},outcome=\"{outcome}\"}}"))
    };
    assert_eq!((count("allowed"), count("refused")), (1.0, 2.0));
}
