//! Decodes the `subjects` section: known API keys and users, and their facts.

use super::match_section::canonical_fact_name;
use crate::decode::Field;
use crate::diagnostic::FieldError;
use crate::yaml::SourceSpan;

/// The facts that identify a subject, in this order, unless `identity.tier.subject` names another.
const IDENTIFYING_FACTS: [&str; 2] = ["api_key", "user_id"];

/// One subject.
#[derive(Clone, Debug)]
pub(crate) struct DocumentSubject {
    /// The fact that identifies it.
    pub(crate) fact: String,
    /// The value of that fact.
    pub(crate) value: String,
    /// The facts that requests of this subject receive.
    pub facts: Vec<(String, String)>,
    pub(crate) span: SourceSpan,
    pub(crate) path: String,
}

/// Decodes a subject, identified by the fact `by` or else by its API key or user id.
pub(super) fn read(field: &Field<'_>, by: Option<&str>) -> Option<DocumentSubject> {
    let mut facts: Vec<(String, String)> = Vec::new();
    for (name, _, field) in field.fields()?.all_fields() {
        let value = field.text()?;
        facts.push((canonical_fact_name(name).to_owned(), value.to_owned()));
    }
    let mut candidates = by.into_iter().chain(IDENTIFYING_FACTS);
    let at = candidates.find_map(|name| facts.iter().position(|(fact, _)| fact == name));
    let Some(at) = at else {
        let wanted = by.unwrap_or("api_key");
        let error = FieldError::new("nothing identifies this subject");
        field.report(
            error.with_hint(format!("`{wanted}:` and its value, in addition to its facts")),
        );
        return None;
    };
    let (fact, value) = facts.remove(at);
    if facts.is_empty() {
        field.report(FieldError::new("this subject has no facts").with_hint("its `tier:` as well"));
    }
    let (span, path) = (field.span(), field.path().to_owned());
    Some(DocumentSubject { fact, value, facts, span, path })
}
