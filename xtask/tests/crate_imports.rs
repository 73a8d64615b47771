//! Imports between our crates point one way only. To allow a new import, change this table; that is
//! a change of the architecture.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Crates that most others may import: they contain no clock, no I/O and no store.
const DECISION: &[&str] = &["core", "rules", "limiter"];

/// The workspace crates that each crate may import. Tests and benchmarks may import more.
fn allowed() -> BTreeMap<&'static str, Vec<&'static str>> {
    let shared = [DECISION, &["web", "net", "identity", "response", "telemetry"]].concat();
    let admin = [&shared[..], &["api", "rulestore"]].concat();
    let server = [&admin[..], &["gateway", "admin", "memory", "redis"]].concat();
    let cli = [&server[..], &["server"]].concat();
    BTreeMap::from([
        ("core", vec![]),
        ("memory", vec!["core"]),
        ("redis", vec!["core"]),
        ("rules", vec!["core"]),
        ("limiter", vec!["core", "rules"]),
        ("web", vec!["core"]),
        ("net", vec!["web"]),
        ("identity", vec!["core", "rules", "web"]),
        ("response", vec!["core", "rules", "limiter", "web"]),
        ("telemetry", [DECISION, &["web", "net"]].concat()),
        ("gateway", shared.clone()),
        ("api", shared),
        ("rulestore", vec!["core", "rules", "web", "telemetry"]),
        ("admin", admin),
        ("server", server),
        ("cli", cli),
        ("testkit", vec!["core"]),
        ("simulator", [DECISION, &["memory", "testkit"]].concat()),
    ])
}

/// Crates outside of the table: `bench` and `fixtures` use all crates on purpose, `xtask` none.
const EXEMPT: [&str; 3] = ["bench", "fixtures", "xtask"];

/// The workspace crates that each crate imports, also when it is built, but not for its tests.
fn imports() -> BTreeMap<String, Vec<String>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let short = |name: &str| name.strip_prefix("tidegate-").unwrap_or(name).to_owned();
    let ours = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let ours = dependencies.filter(|one| one["kind"] != "dev" && one["path"].is_string());
        let names = ours.map(|one| short(one["name"].as_str().unwrap()));
        (short(package["name"].as_str().unwrap()), names.collect())
    });
    ours.collect()
}

#[test]
fn crates_import_only_what_the_table_allows() {
    let allowed = allowed();
    for (name, imports) in imports() {
        if EXEMPT.contains(&name.as_str()) {
            continue;
        }
        let Some(allowed) = allowed.get(name.as_str()) else {
            panic!("crate `{name}` is not in the table: add what it may import")
        };
        for import in imports {
            assert!(
                allowed.contains(&import.as_str()),
                "crate `{name}` must not import `{import}`; it may import {allowed:?}"
            );
        }
    }
}

/// The table here, the table in ARCHITECTURE.md and the workspace name the same crates.
#[test]
fn both_tables_list_every_crate() {
    let table: BTreeSet<String> = allowed().into_keys().map(str::to_owned).collect();
    let mut existing: BTreeSet<String> = imports().into_keys().collect();
    existing.retain(|name| !EXEMPT.contains(&name.as_str()));
    assert_eq!(table, existing, "the table above and the workspace");
    let document = include_str!("../../ARCHITECTURE.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let mut documented: BTreeSet<String> = rows.map(|(name, _)| name.to_owned()).collect();
    documented.retain(|name| !EXEMPT.contains(&name.as_str()));
    assert_eq!(table, documented, "the table above and the one in ARCHITECTURE.md");
}
