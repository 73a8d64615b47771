//! The crates that are published: their metadata is complete, everything that they need is
//! published too, and the library stays small.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The libraries, and the parts that they need.
const PUBLISHED: [&str; 11] = [
    "tidegate",
    "tidegate-client",
    "tidegate-core",
    "tidegate-identity",
    "tidegate-limiter",
    "tidegate-memory",
    "tidegate-redis",
    "tidegate-response",
    "tidegate-rules",
    "tidegate-tower",
    "tidegate-web",
];

/// The most crates of others that `tidegate` may need without features. The fewer, the sooner a
/// program is built.
const MAX_OUTSIDE_CRATES: usize = 25;

/// What `tidegate` must never need without features: an HTTP stack or a runtime.
const HEAVY_CRATES: [&str; 5] = ["hyper", "http", "tokio", "redis", "rustls"];

fn run_cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(args).arg("--offline").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The packages of the workspace by name.
fn packages() -> BTreeMap<String, Value> {
    let metadata: Value =
        serde_json::from_str(&run_cargo(&["metadata", "--no-deps", "--format-version", "1"]))
            .unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|it| (it["name"].as_str().unwrap().to_owned(), it.clone())).collect()
}

/// `publish = true` is `null` in the metadata, and `false` an empty list of registries.
fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

fn texts<'p>(package: &'p Value, field: &str) -> Vec<&'p str> {
    package[field].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn only_libraries_and_their_parts_are_published() {
    let packages = packages();
    let published: BTreeSet<&str> =
        packages.iter().filter(|(_, it)| is_published(it)).map(|(name, _)| &**name).collect();
    let expected: BTreeSet<&str> =
        PUBLISHED.into_iter().filter(|name| packages.contains_key(*name)).collect();
    assert_eq!(published, expected);
}

#[test]
fn published_crates_have_complete_metadata() {
    for (name, package) in packages().iter().filter(|(_, it)| is_published(it)) {
        for field in ["description", "license", "readme", "rust_version"] {
            let text = package[field].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{name} has no {field}");
        }
        let description = package["description"].as_str().unwrap();
        assert!(description.ends_with('.') && description.len() <= 120, "{name}: {description}");
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        assert!(folder.join(package["readme"].as_str().unwrap()).is_file(), "{name}: no readme");
        // The registry accepts at most five keywords of 20 characters.
        let keywords = texts(package, "keywords");
        let valid = |word: &str| {
            let letters = |c: char| c.is_ascii_alphanumeric() || "-_+".contains(c);
            word.len() <= 20
                && word.starts_with(|c: char| c.is_ascii_alphabetic())
                && word.chars().all(letters)
        };
        assert!((1..=5).contains(&keywords.len()), "{name}: {keywords:?}");
        assert!(keywords.iter().all(|word| valid(word)), "{name}: {keywords:?}");
        assert!((1..=5).contains(&texts(package, "categories").len()), "{name}: categories");
    }
}

/// A published crate can only depend on published crates, and needs their versions.
#[test]
fn published_crates_depend_on_published_versions() {
    let packages = packages();
    for (name, package) in packages.iter().filter(|(_, it)| is_published(it)) {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        for dependency in dependencies.filter(|it| it["path"].is_string() && it["kind"] != "dev") {
            let other = dependency["name"].as_str().unwrap();
            assert!(is_published(&packages[other]), "{name} needs {other}, which is not published");
            let wanted = format!("^{}", packages[other]["version"].as_str().unwrap());
            assert_eq!(dependency["req"], wanted.as_str(), "{name} needs {other}");
        }
    }
}

#[test]
fn library_needs_no_runtime_and_few_crates() {
    let tree = run_cargo(&["tree", "-p", "tidegate", "-e", "normal", "--prefix", "none"]);
    let names: BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for heavy in HEAVY_CRATES {
        assert!(!names.contains(heavy), "tidegate without features needs {heavy}");
    }
    let outside: Vec<&&str> = names.iter().filter(|name| !name.starts_with("tidegate")).collect();
    assert!(names.contains("tidegate-limiter") && !outside.is_empty(), "{tree}");
    assert!(outside.len() <= MAX_OUTSIDE_CRATES, "{} crates: {outside:?}", outside.len());
}
