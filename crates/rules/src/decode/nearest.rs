//! Suggests the name that the user probably meant, by edit distance.

/// The closest known name, if it is close enough to be a typo.
#[must_use]
pub fn nearest<'n>(typed: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let typed = typed.to_ascii_lowercase();
    // Long texts are not typos, and the comparison takes quadratic time.
    if typed.len() > 40 {
        return None;
    }
    let allowed = (typed.len() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|name| (edit_distance(typed.as_bytes(), name.to_ascii_lowercase().as_bytes()), name))
        .filter(|(edits, _)| *edits <= allowed)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// Number of insertions, deletions, replacements and swaps of neighbors between two texts.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        let [before_last, last, row] = &mut rows;
        row[0] = i;
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn nearest_name_matches_only_typos() {
        let known = ["requests", "window", "algorithm", "burst", "queue", "id"];
        assert_eq!(nearest("reqeusts", known), Some("requests"));
        assert_eq!(nearest("Windows", known), Some("window"));
        assert_eq!(nearest("algoritm", known), Some("algorithm"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(5_000), known), None);
    }
}
