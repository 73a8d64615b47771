//! Imports between our crates point one way only. To allow a new import, change this table; that is
//! a change of the architecture.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Crates that most others may import: they contain no clock, no I/O and no store.
const DECISION: &[&str] = &["core", "rules", "limiter"];

/// The workspace crates that each crate may import. Tests and benchmarks may import more.
fn allowed() -> BTreeMap<&'static str, Vec<&'static str>> {
    let shared = [DECISION, &["web", "net", "identity", "response", "telemetry"]].concat();
    let admin = [&shared[..], &["api", "rulestore"]].concat();
    let server = [&admin[..], &["gateway", "admin", "memory", "redis", "tidegate"]].concat();
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
        ("tidegate", [DECISION, &["memory", "redis"]].concat()),
        (
            "tower",
            [DECISION, &["memory", "redis", "web", "identity", "response", "tidegate"]].concat(),
        ),
        ("server", server),
        ("cli", cli),
        ("client", vec![]),
        ("testkit", vec!["core"]),
        ("simulator", [DECISION, &["memory", "testkit"]].concat()),
    ])
}

/// Crates outside of the table: `bench` and `fixtures` use all crates on purpose, `xtask` none.
const EXEMPT: [&str; 3] = ["bench", "fixtures", "xtask"];

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The workspace crates that each crate imports for itself and its build script (`dev` is false) or
/// only for its tests.
fn imports(dev: bool) -> Imports {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let short = |name: &str| name.strip_prefix("tidegate-").unwrap_or(name).to_owned();
    let ours = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let ours =
            dependencies.filter(|one| (one["kind"] == "dev") == dev && one["path"].is_string());
        let names = ours.map(|one| short(one["name"].as_str().unwrap()));
        (short(package["name"].as_str().unwrap()), names.collect())
    });
    ours.collect()
}

/// The crates that a crate imports, directly or through others.
fn all_imports<'a>(name: &str, imports: &'a Imports) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&str> = imports[name].iter().map(String::as_str).collect();
    while let Some(name) = next.pop() {
        if found.insert(name) {
            next.extend(imports[name].iter().map(String::as_str));
        }
    }
    found
}

/// The text of all source files in a crate's `src` folder.
fn source_text(name: &str) -> String {
    let mut folders = vec![root().join("crates").join(name).join("src")];
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    text
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The first and the third column of the crate table in ARCHITECTURE.md.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut table = BTreeMap::new();
    for row in text.lines().filter_map(|line| line.strip_prefix("| `")) {
        let Some((name, rest)) = row.split_once("` |") else { continue };
        let column = rest.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names = parse_column(column, &table);
        table.insert(name.to_owned(), names);
    }
    table
}

/// The crates that a cell names: a list, `–` for none, or all crates in the rows above.
fn parse_column(text: &str, above: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    if text == "–" {
        return BTreeSet::new();
    }
    let listed = |text: &str| -> BTreeSet<String> {
        let text = text.replace("the stores", "memory, redis").replace(" and ", ", ");
        text.split(", ").map(str::to_owned).collect()
    };
    if text == "all" {
        return above.keys().cloned().collect();
    }
    let Some(except) = text.strip_prefix("all above") else { return listed(text) };
    let except = except.strip_prefix(" except ").map(listed).unwrap_or_default();
    above.keys().filter(|name| !except.contains(*name)).cloned().collect()
}

#[test]
fn crates_import_only_what_the_table_allows() {
    let allowed = allowed();
    for (name, imports) in imports(false) {
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

/// The table above and the one in ARCHITECTURE.md agree, and name every crate of the workspace.
#[test]
fn documented_table_equals_enforced_table() {
    let mut existing: BTreeSet<String> = imports(false).into_keys().collect();
    existing.retain(|name| !EXEMPT.contains(&name.as_str()));
    let names = allowed().into_keys().map(str::to_owned).collect();
    assert_eq!(existing, names, "the workspace and the table above");
    let enforced: BTreeMap<String, BTreeSet<String>> = allowed()
        .into_iter()
        .map(|(name, imports)| (name.to_owned(), imports.into_iter().map(str::to_owned).collect()))
        .collect();
    let mut documented = documented();
    documented.retain(|name, _| !EXEMPT.contains(&name.as_str()));
    assert_eq!(documented, enforced, "ARCHITECTURE.md and the table above");
}

/// If the unit tests of a crate used a crate that imports it, it would be compiled a second time,
/// and the types of the two would differ.
#[test]
fn unit_tests_use_no_crate_that_imports_theirs() {
    let imports_of = imports(false);
    for (name, helpers) in imports(true) {
        if EXEMPT.contains(&name.as_str()) {
            continue;
        }
        let text = source_text(&name);
        for helper in helpers {
            let imports_this = all_imports(&helper, &imports_of).contains(name.as_str());
            if imports_this || helper == "fixtures" {
                let used = text.contains(&format!("tidegate_{helper}"));
                assert!(!used, "crates/{name}/src uses `{helper}`: only crates/{name}/tests may");
            }
        }
    }
}
