//! `import`: its output, and servers that answer Envoy's rate limit calls with imported rules.

use serde_json::{Value, json};

use crate::support::{ServerProcess, TestFolder, call_grpc, run_curl, run_tidegate, utf8_text};

/// Windows of a year: no quota is restored while the test runs.
const EDGE_CONFIG: &str = "\
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { name: per-address, unit: year, requests_per_unit: 2 }
  - { key: remote_address, value: 10.0.0.1 }
  - { key: remote_address, value: 10.0.0.2, rate_limit: { unit: year, requests_per_unit: 0 } }
  - key: tenant
    value: a*
    share_threshold: true
    descriptors:
      - key: user
        rate_limit: { unit: year, requests_per_unit: 3 }
";

const PARTNERS_CONFIG: &str = "\
domain: edge
descriptors:
  - key: partner
    rate_limit: { unit: year, requests_per_unit: 9, replaces: [{ name: per-address }] }
  - { key: trial, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
";

fn run_import(folder: &TestFolder) -> String {
    folder.write("edge.yaml", EDGE_CONFIG);
    folder.write("partners.yml", PARTNERS_CONFIG);
    folder.write("notes.txt", "not: [for us");
    folder.write(".hidden.yaml", "not: [for us");
    let output = run_tidegate(&["import", "envoy-ratelimit", folder.path("").to_str().unwrap()]);
    assert_eq!((output.status.code(), utf8_text(&output.stderr).as_str()), (Some(0), ""));
    utf8_text(&output.stdout)
}

type DescriptorEntries = &'static [(&'static str, &'static str)];

fn rate_limit_call(descriptors: &[DescriptorEntries]) -> Value {
    let entry = |(key, value): &(&str, &str)| json!({ "key": key, "value": value });
    let descriptor = |pairs: &DescriptorEntries| json!({ "entries": pairs.iter().map(entry).collect::<Vec<_>>() });
    json!({ "domain": "edge", "descriptors": descriptors.iter().map(descriptor).collect::<Vec<_>>() })
}

/// Each status as `code limit remaining`.
fn summarize_statuses(response: &Value) -> Vec<String> {
    let statuses = response["statuses"].as_array().unwrap().iter();
    let summarize = |status: &Value| {
        let limit = status["currentLimit"]["requestsPerUnit"].as_u64();
        let limit = limit.map_or("-".to_owned(), |limit| limit.to_string());
        let remaining = status["limitRemaining"].as_u64().unwrap_or_default();
        format!("{} {limit} {remaining}", status["code"].as_str().unwrap())
    };
    statuses.map(summarize).collect()
}

const CLIENT: DescriptorEntries = &[("remote_address", "192.0.2.1")];
const EXEMPT: DescriptorEntries = &[("remote_address", "10.0.0.1")];
const BLOCKED: DescriptorEntries = &[("remote_address", "10.0.0.2")];
const PARTNER: DescriptorEntries = &[("partner", "x")];
const TRIAL: DescriptorEntries = &[("trial", "1")];

/// The descriptors of a call, and the expected statuses.
type ImportCase = (&'static [DescriptorEntries], &'static [&'static str]);

const TABLE: &[ImportCase] = &[
    (&[CLIENT], &["OK 2 1"]),
    (&[CLIENT, EXEMPT], &["OK 2 0", "OK - 4294967295"]),
    (&[CLIENT, TRIAL], &["OVER_LIMIT 2 0", "OK - 0"]),
    (&[CLIENT, PARTNER], &["OK - 0", "OK 9 8"]),
    (&[BLOCKED, PARTNER], &["OVER_LIMIT - 0", "OK 9 7"]),
    (&[PARTNER, BLOCKED], &["OK 9 6", "OVER_LIMIT - 0"]),
    (&[&[("remote_address", "192.0.2.1"), ("user", "ann")]], &["OK - 0"]),
    (
        &[&[("tenant", "a1"), ("user", "ann")], &[("tenant", "a2"), ("user", "ann")]],
        &["OK 3 2", "OK 3 1"],
    ),
    (&[&[("tenant", "a3"), ("user", "bob")]], &["OK 3 2"]),
    (&[&[("tenant", "b1"), ("user", "ann")]], &["OK - 0"]),
    (&[&[("tenant", "a1")]], &["OK - 0"]),
    (&[TRIAL], &["OK - 0"]),
    (&[EXEMPT], &["OK - 4294967295"]),
];

#[test]
fn imported_rules_match_reference_decisions() {
    let folder = TestFolder::new();
    let file = folder.write("imported", run_import(&folder));
    let check = run_tidegate(&["config", "check", file.to_str().unwrap()]);
    assert_eq!((check.status.code(), utf8_text(&check.stderr).as_str()), (Some(0), ""));
    let server = ServerProcess::with_config(&file, &["--grpc", "127.0.0.1:0"]);
    let calls: Vec<Value> =
        TABLE.iter().map(|(descriptors, _)| rate_limit_call(descriptors)).collect();
    let responses = call_grpc(&server.grpc_address(), &calls);
    for ((descriptors, expected), response) in TABLE.iter().zip(&responses) {
        assert_eq!(summarize_statuses(response), *expected, "{descriptors:?}");
    }
    let other = ServerProcess::with_config(&file, &[]);
    let url = format!("http://{}/json", other.address);
    for (descriptors, expected) in TABLE {
        let response = run_curl(&["--data", &rate_limit_call(descriptors).to_string(), &url]);
        assert_eq!(
            summarize_statuses(&serde_json::from_str(&response.body).unwrap()),
            *expected,
            "{descriptors:?}"
        );
    }
}

#[test]
fn unsupported_fields_are_listed_after_import() {
    let folder = TestFolder::new();
    let file = folder.write(
        "quota.yaml",
        EDGE_CONFIG
            .replace("    share_threshold", "    detailed_metric: true\n    share_threshold"),
    );
    let name = file.to_str().unwrap();
    let output = run_tidegate(&["import", "envoy-ratelimit", name]);
    assert_eq!(output.status.code(), Some(1));
    assert!(utf8_text(&output.stdout).contains("id: per-address"));
    let listed = utf8_text(&output.stderr);
    assert!(listed.starts_with(&format!("{name}:9: descriptors[3].detailed_metric: ")), "{listed}");
    assert_eq!(listed.lines().count(), 1, "{listed}");
}

#[test]
fn invalid_import_prints_no_document() {
    let folder = TestFolder::new();
    let one = folder.write("one.yaml", "domain: d\ndescriptors: [{ kee: a }]\n");
    let two = folder.write("two.yaml", b"domain: caf\xE9\n");
    let [one, two] = [&one, &two].map(|path| path.to_str().unwrap());
    let output = run_tidegate(&["import", "envoy-ratelimit", one, one]);
    assert_eq!((output.status.code(), utf8_text(&output.stdout).as_str()), (Some(1), ""));
    assert_eq!(
        utf8_text(&output.stderr).matches(":2:17: descriptors[0].kee").count(),
        2,
        "problems of all files at once"
    );
    let output = run_tidegate(&["import", "limitador", two]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        utf8_text(&output.stderr).contains(":1:12: this is not UTF-8"),
        "{}",
        utf8_text(&output.stderr)
    );
}

#[test]
fn unreadable_import_exits_with_code_3() {
    let folder = TestFolder::new();
    for args in [
        ["import", "limitador", "no-such-file.yaml"],
        ["import", "envoy-ratelimit", "no-such-file.yaml"],
        ["import", "envoy-ratelimit", folder.path("").to_str().unwrap()],
    ] {
        let output = run_tidegate(&args);
        assert_eq!(
            (output.status.code(), utf8_text(&output.stdout).as_str()),
            (Some(3), ""),
            "{args:?}"
        );
    }
}

#[test]
fn imported_limitador_file_limits_calls() {
    let folder = TestFolder::new();
    let limits = folder.write(
        "limits.yaml",
        "- { id: writes, namespace: edge, max_value: 2, seconds: 31536000, \
           conditions: [\"descriptors[0]['req.method'] == 'POST'\"], variables: [\"descriptors[0].user_id\"] }\n",
    );
    let output = run_tidegate(&["import", "limitador", limits.to_str().unwrap()]);
    assert_eq!((output.status.code(), utf8_text(&output.stderr).as_str()), (Some(0), ""));
    let file = folder.write("rules.yaml", output.stdout);
    let server = ServerProcess::with_config(&file, &[]);
    let url = format!("http://{}/json", server.address);
    let send = |pairs: DescriptorEntries| {
        let response = run_curl(&["--data", &rate_limit_call(&[pairs]).to_string(), &url]);
        summarize_statuses(&serde_json::from_str(&response.body).unwrap()).concat()
    };
    let (post, get): (DescriptorEntries, DescriptorEntries) =
        (&[("req.method", "POST"), ("user_id", "7")], &[("req.method", "GET"), ("user_id", "7")]);
    assert_eq!([send(post), send(post), send(post)], ["OK 2 1", "OK 2 0", "OVER_LIMIT 2 0"]);
    assert_eq!(send(get), "OK - 0");
    assert_eq!(send(&[("req.method", "POST")]), "OK - 0", "a variable is missing");
    assert_eq!(send(&[("req.method", "POST"), ("user_id", "8")]), "OK 2 1");
}
