//! Limitador's limits files.

use tidegate_rules::Facts;
use tidegate_rules::Matches;
use tidegate_rules::import::{Foreign, Imported, limitador};

use crate::golden::{assert_golden, compile, input, printed};

fn imported(text: &str) -> Imported {
    limitador(&Foreign { file: "limits.yaml", text })
        .unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn every_form_is_carried_over_or_listed_as_it_was_reviewed() {
    for name in ["limits", "limits-gaps"] {
        let imported = imported(&input(&format!("{name}.yaml")));
        assert_golden(&format!("{name}.txt"), &printed(&imported));
        assert_eq!(imported.gaps.is_empty(), name == "limits");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let text = input("limits-mistakes.yaml");
    let problems = limitador(&Foreign { file: "limits.yaml", text: &text }).unwrap_err();
    assert_golden("limits-mistakes.txt", &problems.to_string());
    let map = limitador(&Foreign { file: "l", text: "limits: []" }).unwrap_err().to_string();
    assert!(map.contains("a limits file is a list"), "{map}");
    assert_eq!(imported("# none\n").document, "rules: []\n");
}

/// A limit is skipped where an entry that it names is not there, also one that is only to differ.
#[test]
fn conditions_mean_what_they_mean_there() {
    let text = "- { id: r, namespace: d, max_value: 1, seconds: 1, conditions: [\"a != 'x'\", \"b in ['1', '2']\"], variables: [c] }";
    let set = compile(&imported(text).document);
    let governed = |pairs: &[(&'static str, &'static str)]| {
        let mut facts: Facts<'_> = [("domain", "d")].into_iter().collect();
        pairs.iter().for_each(|(name, value)| facts.push(*name, *value));
        let mut found = Matches::new();
        set.matching(&facts, &mut found);
        found.len() == 1
    };
    assert!(governed(&[("a", "y"), ("b", "2"), ("c", "")]));
    assert!(!governed(&[("a", "x"), ("b", "2"), ("c", "1")]));
    assert!(!governed(&[("b", "2"), ("c", "1")]), "a is not there");
    assert!(!governed(&[("a", "y"), ("b", "3"), ("c", "1")]));
    assert!(!governed(&[("a", "y"), ("b", "1")]), "c is not there");
}
