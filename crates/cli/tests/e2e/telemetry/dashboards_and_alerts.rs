//! The alerts and the dashboard in `deploy/`: promtool accepts the alerts, and a running server
//! exposes every metric and label that their queries use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use tidegate_testkit::redis::RedisServer as Redis;

use super::{RULES, fetch_metrics, metric_families, run_promtool, send_writes};
use crate::support::{ServerProcess, TestFolder};

fn deploy_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

/// The store of another region, which is down.
const OTHER_REGION: &str = "us=redis://127.0.0.1:1";

/// Metric names with their labels, and the values of each label.
type ExposedMetrics = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The metrics that servers expose with either store, and with that of another region.
fn exposed_metrics() -> ExposedMetrics {
    let (folder, redis) = (TestFolder::new(), Redis::start());
    let (rules, url) = (folder.write("rules.yaml", RULES), redis.url());
    let mut metrics = ExposedMetrics::new();
    let in_region = ["--store", &url, "--region", "eu", "--region-store", OTHER_REGION];
    for args in [&[][..], &["--store", &url], &in_region] {
        let server =
            ServerProcess::with_config(&rules, &[&["--admin", "127.0.0.1:0"], args].concat());
        send_writes(&server, 3);
        for line in fetch_metrics(&server).lines().filter(|line| !line.starts_with('#')) {
            let series = line.rsplit_once(' ').unwrap().0;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let known = metrics.entry(name.to_owned()).or_default();
            for (label, value) in parse_matchers(labels.trim_end_matches('}')) {
                known.entry(label).or_default().insert(value);
            }
        }
    }
    metrics
}

/// Parses labels and values, such as `api="http",outcome=~"a|b"`.
fn parse_matchers(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((label, after)) = rest.split_once('"') {
        let (value, next) = after.split_once('"').unwrap_or((after, ""));
        let label = label.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        found.push((label.to_owned(), value.to_owned()));
        rest = next;
    }
    found
}

/// Labels that Prometheus adds to every series.
const PROMETHEUS_LABELS: [&str; 2] = ["job", "instance"];

/// The names, labels and values in a query that no server exposes.
fn query_problems(query: &str, metrics: &ExposedMetrics) -> Vec<String> {
    let mut problems = Vec::new();
    let mut grouped: BTreeSet<String> = PROMETHEUS_LABELS.map(str::to_owned).into();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (at, _) in query.match_indices("tidegate_") {
        let name: String = query[at..].chars().take_while(|c| is_name(*c)).collect();
        let Some(labels) = metrics.get(&name) else {
            problems.push(format!("no server exposes {name}"));
            continue;
        };
        grouped.extend(labels.keys().cloned());
        let selector =
            query[at + name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        for (label, value) in selector.map(|(inner, _)| parse_matchers(inner)).unwrap_or_default() {
            if PROMETHEUS_LABELS.contains(&label.as_str()) {
                continue;
            }
            match labels.get(&label) {
                None => problems.push(format!("{name} has no label {label}")),
                // A dashboard variable.
                Some(_) if value.starts_with('$') => {}
                Some(known) => {
                    let unknown = value.split('|').filter(|value| !known.contains(*value));
                    problems
                        .extend(unknown.map(|value| format!("{name}: {label} is never {value}")));
                }
            }
        }
    }
    for group in query.split("by (").skip(1) {
        let labels = group.split(')').next().unwrap_or_default().split(", ");
        let unknown = labels.filter(|label| !grouped.contains(*label));
        problems.extend(unknown.map(|label| format!("nothing has the label {label}")));
    }
    problems
}

/// Every query of a dashboard, at any depth.
fn dashboard_queries(dashboard: &Json) -> Vec<String> {
    match dashboard {
        Json::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match value {
                Json::String(text) if name == "expr" || name == "query" => vec![text.clone()],
                _ => dashboard_queries(value),
            })
            .collect(),
        Json::Array(list) => list.iter().flat_map(dashboard_queries).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn dashboard_queries_match_exposed_metrics() {
    let dashboard = std::fs::read_to_string(deploy_path("grafana/tidegate.json")).unwrap();
    let queries = dashboard_queries(&serde_json::from_str(&dashboard).unwrap());
    let metrics = exposed_metrics();
    for query in &queries {
        assert_eq!(query_problems(query, &metrics), Vec::<String>::new(), "{query}");
    }
    assert!(queries.len() > 40, "{} queries", queries.len());
    let all = queries.join("\n");
    let (folder, redis) = (TestFolder::new(), Redis::start());
    let (rules, url) = (folder.write("rules.yaml", RULES), redis.url());
    let in_region = ["--store", &url, "--region", "eu", "--region-store", OTHER_REGION];
    for args in [&[][..], &["--store", &url], &in_region] {
        let args = [&["--admin", "127.0.0.1:0"], args].concat();
        let server = ServerProcess::with_config(&rules, &args);
        for family in metric_families(&fetch_metrics(&server)).keys() {
            assert!(all.contains(family), "no panel shows {family}");
        }
    }
}

#[test]
fn alert_queries_match_exposed_metrics() {
    let alerts = std::fs::read_to_string(deploy_path("prometheus/alerts.yml")).unwrap();
    let lines = alerts.lines().filter(|line| !line.trim_start().starts_with('#'));
    let text = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(query_problems(&text, &exposed_metrics()), Vec::<String>::new());
}

#[test]
fn unknown_metrics_in_queries_are_detected() {
    let metrics = exposed_metrics();
    for (query, problem) in [
        ("rate(tidegate_decision_total[5m])", "no server exposes tidegate_decision_total"),
        ("tidegate_store_up{server=\"a\"}", "tidegate_store_up has no label server"),
        (
            "tidegate_rule_verdicts_total{verdict=~\"deny|denied\"}",
            "tidegate_rule_verdicts_total: verdict is never denied",
        ),
        ("sum by (job, client) (tidegate_store_up)", "nothing has the label client"),
    ] {
        assert_eq!(query_problems(query, &metrics), [problem]);
    }
}

#[test]
fn alerts_pass_promtool_checks() {
    for args in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let file = deploy_path(&format!("prometheus/{}", args[2]));
        let (valid, output) = run_promtool(&[args[0], args[1], file.to_str().unwrap()], "");
        assert!(valid && output.contains("SUCCESS"), "{output}");
    }
}

/// Without a test, an alert may never fire.
#[test]
fn every_alert_fires_in_a_test() {
    let text = |name| std::fs::read_to_string(deploy_path(name)).unwrap();
    let (alerts, tests) = (text("prometheus/alerts.yml"), text("prometheus/alerts_test.yml"));
    let names = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for name in names {
        let fires = format!("alertname: {name}\n        exp_alerts:\n          - exp_labels");
        assert!(tests.contains(&fires), "{name} fires in no test");
    }
}
