//! Imports between our crates point one way only. To allow a new import, change this table; that is
//! a change of the architecture.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
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

/// The workspace crates that each crate imports, without dev-dependencies.
fn imports() -> BTreeMap<String, Vec<String>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let ours = packages.filter_map(|package| {
        let name = package["name"].as_str()?.strip_prefix("tidegate-")?;
        let dependencies = package["dependencies"].as_array()?.iter();
        let normal = dependencies.filter(|dependency| dependency["kind"].is_null());
        let names = normal.filter_map(|dependency| {
            Some(dependency["name"].as_str()?.strip_prefix("tidegate-")?.to_owned())
        });
        Some((name.to_owned(), names.collect()))
    });
    ours.collect()
}

#[test]
fn crates_import_only_what_the_table_allows() {
    let allowed = allowed();
    for (name, imports) in imports() {
        // These two use all crates on purpose.
        if ["bench", "fixtures"].contains(&name.as_str()) {
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
