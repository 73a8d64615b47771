//! Every relative link in a document leads somewhere, and every file that a document names exists.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders whose files documents name by their path from the root.
const FOLDERS: [&str; 8] =
    ["crates/", "docs/", "examples/", "deploy/", "benches/", "xtask/", ".ci/", ".cargo/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The documents of the repository, by their path from the root.
fn documents() -> Vec<String> {
    let output = Command::new("git").arg("-C").arg(root()).args(["ls-files", "*.md"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let documents: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert!(documents.len() > 10, "{documents:?}");
    documents
}

/// The targets of the links in a text.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// The code spans of a text that name a file or folder of the repository.
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        FOLDERS.iter().any(|folder| span.starts_with(folder))
            && !span.contains(['*', '{', '<', '…', ' ', '\n'])
            && !span.chars().any(|letter| letter.is_ascii_uppercase() && span.contains("NNN"))
    })
}

/// The text outside fenced code blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

#[test]
fn document_links_lead_to_files() {
    let mut broken = Vec::new();
    for document in documents() {
        let path = root().join(&document);
        let text = prose(&fs::read_to_string(&path).unwrap());
        for link in links(&text) {
            let target = link.split(['#', ' ']).next().unwrap();
            let is_external = target.contains("://") || target.starts_with("mailto:");
            if target.is_empty() || is_external {
                continue;
            }
            if !path.parent().unwrap().join(target).exists() {
                broken.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn files_named_in_documents_exist() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = prose(&fs::read_to_string(root().join(&document)).unwrap());
        for name in named_files(&text) {
            let name = name.trim_end_matches([':', '/']);
            if !root().join(name).exists() {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "files that do not exist:\n{}", missing.join("\n"));
}
