//! Compiles every rules document in the README and the documentation.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::path::Path;

use tidegate_core::key::Secret;
use tidegate_rules::{Document, RuleSet};

/// The `yaml` blocks of a Markdown page.
fn yaml_blocks(page: &str) -> Vec<&str> {
    let blocks = page.split("```yaml\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

#[test]
fn documentation_rule_examples_compile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let docs = std::fs::read_dir(root.join("docs")).expect("docs/");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    pages.extend(docs.filter(|path| path.extension().is_some_and(|end| end == "md")));
    let mut seen = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for block in yaml_blocks(&text) {
            let name = page.display().to_string();
            let document = Document::parse(&name, block);
            let mut document = document.unwrap_or_else(|problems| panic!("{problems}\n{block}"));
            // The server decodes `server: { region: eu }`.
            document.set_region(Some("eu"));
            RuleSet::compile(&document, Secret::UNSET)
                .unwrap_or_else(|problems| panic!("{problems}\n{block}"));
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen} documents were found");
}
