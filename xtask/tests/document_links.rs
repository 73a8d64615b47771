//! Documents point only at what exists: every relative link with its heading, and every file of
//! the repository that a document names in backticks.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders at the root; a name in backticks that starts with one of them is a path.
const FOLDERS: [&str; 8] =
    [".cargo/", ".ci/", "benches/", "crates/", "deploy/", "docs/", "examples/", "xtask/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The Markdown files that git tracks.
fn documents() -> Vec<PathBuf> {
    let mut command = Command::new("git");
    let output = command.args(["ls-files", "*.md"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().map(PathBuf::from).collect()
}

/// The targets of `[text](target)` and of `src`, `srcset` and `href` attributes.
fn link_targets(text: &str) -> Vec<&str> {
    let markers = [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')];
    let targets = markers.into_iter().flat_map(|(open, close)| {
        text.split(open).skip(1).filter_map(move |rest| rest.split(close).next())
    });
    targets.collect()
}

/// Paths in backticks, without a line number or a pattern.
fn named_files(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let words = quoted.filter(|name| FOLDERS.iter().any(|folder| name.starts_with(folder)));
    words
        .filter(|name| !name.contains(|c: char| "*… <>{}:".contains(c) || c.is_control()))
        .collect()
}

/// The text outside of fenced code blocks, where links are links and backticks are pairs.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> HashSet<String> {
    let headings = prose(text);
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| -> String {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

/// Why a link of a document leads nowhere.
fn link_error(document: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => root().join(document),
        path => root().join(document).parent().unwrap().join(path),
    };
    if !file.exists() {
        return Some(format!("{}: no file {target}", document.display()));
    }
    let found = anchor.is_empty() || anchors(&fs::read_to_string(&file).unwrap()).contains(anchor);
    (!found).then(|| format!("{}: no heading {target}", document.display()))
}

#[test]
fn links_and_named_files_exist() {
    let mut errors = Vec::new();
    let mut checked = 0;
    for document in documents() {
        let text = prose(&fs::read_to_string(root().join(&document)).unwrap());
        for target in link_targets(&text) {
            checked += 1;
            errors.extend(link_error(&document, target));
        }
        for name in named_files(&text) {
            checked += 1;
            if !root().join(name).exists() {
                errors.push(format!("{}: no file {name}", document.display()));
            }
        }
    }
    assert!(checked > 100, "only {checked} links were found");
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn dead_links_are_found() {
    let readme = Path::new("README.md");
    assert_eq!(link_error(readme, "docs/concepts.md#words"), None);
    assert!(link_error(readme, "docs/concepts.md#no-such-heading").is_some());
    assert!(link_error(readme, "docs/no-such-file.md").is_some());
    assert_eq!(link_targets("a [b](c.md) <img src=\"d.png\">"), ["c.md", "d.png"]);
    assert_eq!(
        named_files("see `crates/core/src/lib.rs`, `docs/*.md` and `cargo`"),
        ["crates/core/src/lib.rs"]
    );
}
