//! Imports of Limitador limits files.

use tidegate_rules::Facts;
use tidegate_rules::MatchedRules;
use tidegate_rules::import::{ForeignFile, ImportResult, limitador};

use crate::golden::{assert_golden, compile, import_output, input};

fn import_text(text: &str) -> ImportResult {
    limitador(&ForeignFile { file: "limits.yaml", text })
        .unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn limitador_imports_match_golden_files() {
    for name in ["limits", "limits-gaps"] {
        let imported = import_text(&input(&format!("{name}.yaml")));
        assert_golden(&format!("{name}.txt"), &import_output(&imported));
        assert_eq!(imported.unsupported.is_empty(), name == "limits");
    }
}

#[test]
fn limitador_errors_match_golden_file() {
    let text = input("limits-mistakes.yaml");
    let problems = limitador(&ForeignFile { file: "limits.yaml", text: &text }).unwrap_err();
    assert_golden("limits-mistakes.txt", &problems.to_string());
    let map = limitador(&ForeignFile { file: "l", text: "limits: []" }).unwrap_err().to_string();
    assert!(map.contains("a limits file is a list"), "{map}");
    assert_eq!(import_text("# none\n").document, "rules: []\n");
}

/// A limit does not apply if an entry that it names is missing, including an entry compared with
/// `!=`.
#[test]
fn imported_conditions_keep_limitador_semantics() {
    let text = "- { id: r, namespace: d, max_value: 1, seconds: 1, conditions: [\"a != 'x'\", \"b in ['1', '2']\"], variables: [c] }";
    let set = compile(&import_text(text).document);
    let governed = |pairs: &[(&'static str, &'static str)]| {
        let mut facts: Facts<'_> = [("domain", "d")].into_iter().collect();
        pairs.iter().for_each(|(name, value)| facts.push(*name, *value));
        let mut found = MatchedRules::new();
        set.match_rules(&facts, &mut found);
        found.len() == 1
    };
    assert!(governed(&[("a", "y"), ("b", "2"), ("c", "")]));
    assert!(!governed(&[("a", "x"), ("b", "2"), ("c", "1")]));
    assert!(!governed(&[("b", "2"), ("c", "1")]), "`a` is missing");
    assert!(!governed(&[("a", "y"), ("b", "3"), ("c", "1")]));
    assert!(!governed(&[("a", "y"), ("b", "1")]), "`c` is missing");
}
