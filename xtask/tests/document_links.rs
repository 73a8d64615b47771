//! Documents point only at what exists: every relative link with its heading, and every file of
//! the repository that a document names. Comments point only at documents that exist.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders at the root; a name that starts with one of them is a path.
const FOLDERS: [&str; 9] = [
    ".cargo/",
    ".ci/",
    "benches/",
    "clients/",
    "crates/",
    "deploy/",
    "docs/",
    "examples/",
    "xtask/",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files that git tracks and that match the patterns, by their paths from the root.
fn tracked(patterns: &[&str]) -> Vec<String> {
    let mut command = Command::new("git");
    let output = command.arg("ls-files").args(patterns).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().map(str::to_owned).collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// The targets of `[text](target)` and of `src`, `srcset` and `href` attributes.
fn link_targets(text: &str) -> Vec<&str> {
    let markers = [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')];
    let targets = markers.into_iter().flat_map(|(open, close)| {
        text.split(open).skip(1).filter_map(move |rest| rest.split(close).next())
    });
    targets.collect()
}

/// Files in backticks, without a line number or a pattern.
fn named_files(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let whole = |name: &&str| !name.contains(|c: char| "*… <>{}:".contains(c) || c.is_control());
    quoted.filter(|name| is_path(name) || is_source_file(name)).filter(whole).collect()
}

fn is_path(name: &str) -> bool {
    FOLDERS.iter().any(|folder| name.starts_with(folder))
}

/// Whether this is a file such as `breaker.rs`, whose folder is named elsewhere.
fn is_source_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end == "rs" || end == "lua")
}

/// Whether a file is tracked under this name, at the root or, if it is a source file, anywhere.
fn file_exists(name: &str, files: &[String]) -> bool {
    let anywhere = || files.iter().any(|file| file.ends_with(&format!("/{name}")));
    root().join(name).exists() || (!is_path(name) && anywhere())
}

/// Paths of files in the commands of fenced code blocks and in the comments of sources.
fn plain_paths(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || "/._-".contains(c)));
    let words = words.map(|word| word.trim_end_matches('.'));
    words.filter(|word| is_path(word) && Path::new(word).extension().is_some()).collect()
}

/// The text outside of fenced code blocks, where links are links and backticks are pairs, and the
/// text inside.
fn split_fences(text: &str) -> (String, String) {
    let (mut prose, mut code, mut fenced) = (String::new(), String::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else {
            let part = if fenced { &mut code } else { &mut prose };
            part.push_str(line);
            part.push('\n');
        }
    }
    (prose, code)
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> HashSet<String> {
    let (prose, _) = split_fences(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
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
    let files = tracked(&[]);
    for document in tracked(&["*.md"]) {
        let (prose, code) = split_fences(&read(&document));
        for target in link_targets(&prose) {
            checked += 1;
            errors.extend(link_error(Path::new(&document), target));
        }
        for name in named_files(&prose).into_iter().chain(plain_paths(&code)) {
            checked += 1;
            if !file_exists(name, &files) {
                errors.push(format!("{document}: no file {name}"));
            }
        }
    }
    assert!(checked > 100, "only {checked} links were found");
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn documents_named_in_sources_exist() {
    let sources = ["*.rs", "*.js", "*.lua", "*.sql", "*.toml", "*.yaml", "*.yml", "*.service"];
    let files = tracked(&[]);
    for source in tracked(&sources).iter().filter(|name| *name != "xtask/tests/document_links.rs") {
        for name in plain_paths(&read(source)) {
            assert!(file_exists(name, &files), "{source}: no file {name}");
        }
    }
}

#[test]
fn dead_links_are_found() {
    let readme = Path::new("README.md");
    assert_eq!(link_error(readme, "docs/concepts.md#words"), None);
    assert!(link_error(readme, "docs/concepts.md#no-such-heading").is_some());
    assert!(link_error(readme, "docs/no-such-file.md").is_some());
    assert_eq!(link_targets("a [b](c.md) <img src=\"d.png\">"), ["c.md", "d.png"]);
    assert_eq!(
        named_files("see `crates/core/src/lib.rs`, `batch.rs`, `docs/*.md` and `cargo`"),
        ["crates/core/src/lib.rs", "batch.rs"]
    );
    assert_eq!(
        plain_paths("cp deploy/tidegate.service /etc; see docs/redis.md."),
        ["deploy/tidegate.service", "docs/redis.md"]
    );
    let files = tracked(&["crates/core/src/*"]);
    assert!(file_exists("batch.rs", &files) && file_exists("docs/redis.md", &files));
    assert!(!file_exists("no-such.rs", &files) && !file_exists("docs/no-such.md", &files));
}
