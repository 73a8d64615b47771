//! Decides whether two conditions exclude each other. Conservative: `false` means "not known".

use super::{Condition, EndpointPattern, FactMatcher, MatchPolarity, PathMatcher, TextMatcher};

/// Whether no request can satisfy both conditions.
pub(crate) fn are_disjoint(one: &Condition, two: &Condition) -> bool {
    match (one.polarity, two.polarity) {
        (MatchPolarity::Is, MatchPolarity::Is) => matchers_disjoint(&one.matcher, &two.matcher),
        (MatchPolarity::Is, MatchPolarity::IsNot) => is_subset(&one.matcher, &two.matcher),
        (MatchPolarity::IsNot, MatchPolarity::Is) => is_subset(&two.matcher, &one.matcher),
        (MatchPolarity::IsNot, MatchPolarity::IsNot) => false,
    }
}

fn matchers_disjoint(one: &FactMatcher, two: &FactMatcher) -> bool {
    match (one, two) {
        (FactMatcher::Text(one), FactMatcher::Text(two)) => {
            one.fact == two.fact && texts_disjoint(one, two)
        }
        (FactMatcher::Path(one), FactMatcher::Path(two)) => paths_disjoint(one, two),
        (FactMatcher::Ip(one), FactMatcher::Ip(two)) => !one.overlaps(two),
        (FactMatcher::Endpoint(one), FactMatcher::Endpoint(two)) => {
            one.iter().all(|a| two.iter().all(|b| a.is_disjoint(b)))
        }
        (FactMatcher::Text(text), FactMatcher::Endpoint(any))
        | (FactMatcher::Endpoint(any), FactMatcher::Text(text)) => {
            any.iter().all(|pattern| text_excludes(text, pattern))
        }
        (FactMatcher::Path(path), FactMatcher::Endpoint(any))
        | (FactMatcher::Endpoint(any), FactMatcher::Path(path)) => {
            any.iter().all(|pattern| path_excludes(path, pattern))
        }
        // A descriptor leads to a single position in the tree.
        (FactMatcher::Descriptor(one), FactMatcher::Descriptor(two)) => !one.has_same_entries(two),
        _ => false,
    }
}

fn texts_disjoint(one: &TextMatcher, two: &TextMatcher) -> bool {
    let rejects = |test: &TextMatcher, values: &TextMatcher| {
        values.globs.is_empty() && !values.exact.iter().any(|value| test.accepts(value))
    };
    rejects(one, two) || rejects(two, one)
}

fn paths_disjoint(one: &PathMatcher, two: &PathMatcher) -> bool {
    let rejects = |test: &PathMatcher, values: &PathMatcher| {
        values.text.globs.is_empty() && !values.text.exact.iter().any(|value| test.accepts(value))
    };
    rejects(one, two) || rejects(two, one)
}

/// Whether no path that satisfies the condition matches the pattern.
fn path_excludes(path: &PathMatcher, pattern: &EndpointPattern) -> bool {
    let text = &path.text;
    text.globs.is_empty() && !text.exact.iter().any(|path| pattern.matches_path(path))
}

/// Whether a condition on `method` excludes the pattern.
fn text_excludes(text: &TextMatcher, pattern: &EndpointPattern) -> bool {
    match &*text.fact {
        "method" => {
            !pattern.methods.is_empty()
                && !pattern.methods.iter().any(|method| text.accepts(method))
        }
        _ => false,
    }
}

/// Whether everything that `inner` matches also matches `outer`.
fn is_subset(inner: &FactMatcher, outer: &FactMatcher) -> bool {
    match (inner, outer) {
        (FactMatcher::Text(inner), FactMatcher::Text(outer)) => {
            inner.fact == outer.fact
                && inner.exact.iter().all(|value| outer.accepts(value))
                && inner.globs.iter().all(|glob| outer.globs.contains(glob))
        }
        (FactMatcher::Path(inner), FactMatcher::Path(outer)) => {
            inner.text.exact.iter().all(|value| outer.accepts(value))
                && inner.text.globs.iter().all(|glob| outer.text.globs.contains(glob))
        }
        (FactMatcher::Ip(inner), FactMatcher::Ip(outer)) => outer.covers(inner),
        (FactMatcher::Endpoint(inner), FactMatcher::Endpoint(outer)) => {
            inner.iter().all(|pattern| outer.contains(pattern))
        }
        _ => false,
    }
}
