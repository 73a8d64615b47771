//! The page of metrics: as Prometheus wants it, as documented, and after a reload as the rules are.

use tidegate_testkit::redis::Server as Redis;

use super::{RULES, families, page, promtool, sample, traffic};
use crate::support::{Folder, Server, curl, wait_for};

fn serve(folder: &Folder, args: &[&str]) -> Server {
    let rules = folder.write("rules.yaml", RULES);
    Server::with_config(&rules, &[&["--admin", "127.0.0.1:0"], args].concat())
}

#[track_caller]
fn assert_clean(page: &str) {
    assert_eq!(promtool(&["check", "metrics"], page), (true, String::new()), "{page}");
}

#[test]
fn promtool_has_nothing_to_say_of_it_fresh_or_after_traffic_on_either_store() {
    let (folder, redis) = (Folder::new(), Redis::start());
    let url = redis.url();
    for args in [&[][..], &["--store", &url]] {
        let server = serve(&folder, args);
        assert_clean(&page(&server));
        traffic(&server, 5);
        let told = page(&server);
        assert_clean(&told);
        assert_eq!(
            sample(&told, r#"tidegate_requests_total{endpoint="POST /api/*",outcome="refused"}"#),
            3.0
        );
    }
}

#[test]
fn promtool_is_not_content_with_everything() {
    let (content, why) = promtool(&["check", "metrics"], "# TYPE a_total gauge\na_total 1\n");
    assert!(!content && why.contains("a_total"), "{why}");
}

#[test]
fn open_metrics_has_the_same_samples_and_an_end() {
    let folder = Folder::new();
    let server = serve(&folder, &[]);
    traffic(&server, 5);
    let accept = "Accept: application/openmetrics-text; version=1.0.0";
    let url = format!("http://{}/metrics", server.admin());
    let open = curl(&["-H", accept, &url]).body;
    assert!(open.ends_with("# EOF\n"), "{open}");
    let samples = |page: &str| -> Vec<String> {
        page.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(samples(&open), samples(&page(&server)));
}

/// Whoever looks a metric up finds it, and finds nothing that is not there.
#[test]
fn every_metric_is_in_the_documentation_and_no_other() {
    let (folder, redis) = (Folder::new(), Redis::start());
    let mut told = families(&page(&serve(&folder, &[])));
    told.extend(families(&page(&serve(&folder, &["--store", &redis.url()]))));
    // Where nobody is: what becomes of traces is told all the same.
    let collector = ["--otlp", "http://127.0.0.1:9"];
    let traced = page(&serve(&folder, &collector));
    assert_clean(&traced);
    told.extend(families(&traced));
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
    assert_eq!(named, told.keys().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn reloads_are_counted_by_outcome_and_rules_told_apart_by_a_number() {
    let folder = Folder::new();
    let server = serve(&folder, &[]);
    let told = page(&server);
    let (ok, failed) = (
        r#"tidegate_rules_reloads_total{outcome="ok"}"#,
        r#"tidegate_rules_reloads_total{outcome="failed"}"#,
    );
    assert_eq!((sample(&told, ok), sample(&told, failed)), (1.0, 0.0));
    let before = sample(&told, "tidegate_rules_fingerprint");
    folder.replace("rules.yaml", RULES.replace("2/30d", "3/30d"));
    wait_for("the new rules", || (sample(&page(&server), ok) == 2.0).then_some(()));
    assert_ne!(sample(&page(&server), "tidegate_rules_fingerprint"), before);
    folder.replace("rules.yaml", "rules: [{ id: broken }]");
    wait_for("the refusal", || (sample(&page(&server), failed) == 1.0).then_some(()));
    let told = page(&server);
    assert_eq!((sample(&told, ok), sample(&told, "tidegate_rules_degraded")), (2.0, 1.0));
}

#[test]
fn series_of_deleted_rules_vanish() {
    let folder = Folder::new();
    let server = serve(&folder, &[]);
    traffic(&server, 3);
    assert!(page(&server).contains("rule=\"watched\""));
    folder.replace("rules.yaml", RULES.lines().take(3).collect::<Vec<_>>().join("\n"));
    let told = wait_for("the new rules", || {
        let told = page(&server);
        (!told.contains("rule=\"watched\"")).then_some(told)
    });
    let verdicts = "tidegate_rule_verdicts_total{rule=\"writes\",endpoint=\"POST /api/*\",";
    assert_eq!(sample(&told, &format!("{verdicts}mode=\"enforce\",verdict=\"deny\"}}")), 1.0);
}

#[test]
fn buckets_with_their_own_numbers_are_counted_at_their_door() {
    let server = Server::start(&["--admin", "127.0.0.1:0"]);
    let port = server.resp.rsplit_once(':').unwrap().1;
    for _ in 0..3 {
        let mut cli = std::process::Command::new("redis-cli");
        assert!(cli.args(["-p", port, "CL.THROTTLE", "k", "0", "1", "3600"]).output().is_ok());
    }
    let told = page(&server);
    let count = |outcome: &str| {
        let door = "tidegate_decisions_total{door=\"resp\",answered_by=\"store\"";
        sample(&told, &format!("{door},outcome=\"{outcome}\"}}"))
    };
    assert_eq!((count("allowed"), count("refused")), (1.0, 2.0));
}
