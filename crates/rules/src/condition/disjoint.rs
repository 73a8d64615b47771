//! Whether two conditions can never hold together. Conservative: `false` means "perhaps they can".

use super::{Condition, PathTest, Pattern, Sense, Test, TextTest};

/// Whether no request passes both.
pub(crate) fn disjoint(one: &Condition, two: &Condition) -> bool {
    match (one.sense, two.sense) {
        (Sense::Is, Sense::Is) => tests_disjoint(&one.test, &two.test),
        (Sense::Is, Sense::IsNot) => within(&one.test, &two.test),
        (Sense::IsNot, Sense::Is) => within(&two.test, &one.test),
        (Sense::IsNot, Sense::IsNot) => false,
    }
}

fn tests_disjoint(one: &Test, two: &Test) -> bool {
    match (one, two) {
        (Test::Text(one), Test::Text(two)) => one.fact == two.fact && texts_disjoint(one, two),
        (Test::Path(one), Test::Path(two)) => paths_disjoint(one, two),
        (Test::Ip(one), Test::Ip(two)) => !one.overlaps(two),
        (Test::Endpoint(one), Test::Endpoint(two)) => {
            one.iter().all(|a| two.iter().all(|b| a.disjoint(b)))
        }
        (Test::Text(text), Test::Endpoint(any)) | (Test::Endpoint(any), Test::Text(text)) => {
            any.iter().all(|pattern| text_excludes(text, pattern))
        }
        (Test::Path(path), Test::Endpoint(any)) | (Test::Endpoint(any), Test::Path(path)) => {
            any.iter().all(|pattern| path_excludes(path, pattern))
        }
        // A request's descriptor leads to one place.
        (Test::Descriptor(one), Test::Descriptor(two)) => !one.same_place(two),
        _ => false,
    }
}

fn texts_disjoint(one: &TextTest, two: &TextTest) -> bool {
    let rejects = |test: &TextTest, values: &TextTest| {
        values.globs.is_empty() && !values.exact.iter().any(|value| test.accepts(value))
    };
    rejects(one, two) || rejects(two, one)
}

fn paths_disjoint(one: &PathTest, two: &PathTest) -> bool {
    let rejects = |test: &PathTest, values: &PathTest| {
        values.text.globs.is_empty() && !values.text.exact.iter().any(|value| test.accepts(value))
    };
    rejects(one, two) || rejects(two, one)
}

/// Whether a condition on `path` rules a pattern out.
fn path_excludes(path: &PathTest, pattern: &Pattern) -> bool {
    let text = &path.text;
    text.globs.is_empty() && !text.exact.iter().any(|path| pattern.matches_path(path))
}

/// Whether a condition on `method` rules a pattern out.
fn text_excludes(text: &TextTest, pattern: &Pattern) -> bool {
    match &*text.fact {
        "method" => {
            !pattern.methods.is_empty()
                && !pattern.methods.iter().any(|method| text.accepts(method))
        }
        _ => false,
    }
}

/// Whether all that passes the one test passes the other.
fn within(inner: &Test, outer: &Test) -> bool {
    match (inner, outer) {
        (Test::Text(inner), Test::Text(outer)) => {
            inner.fact == outer.fact
                && inner.exact.iter().all(|value| outer.accepts(value))
                && inner.globs.iter().all(|glob| outer.globs.contains(glob))
        }
        (Test::Path(inner), Test::Path(outer)) => {
            inner.text.exact.iter().all(|value| outer.accepts(value))
                && inner.text.globs.iter().all(|glob| outer.text.globs.contains(glob))
        }
        (Test::Ip(inner), Test::Ip(outer)) => outer.covers(inner),
        (Test::Endpoint(inner), Test::Endpoint(outer)) => {
            inner.iter().all(|pattern| outer.contains(pattern))
        }
        _ => false,
    }
}
