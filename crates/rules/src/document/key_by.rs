//! Decodes the counter key of a rule: `key_by`, `key_type`, or `scope` and `key_pattern`.

use super::facts::FactReference;
use super::{Spanned, match_section};
use crate::condition::{Condition, EndpointPattern, FactMatcher, MatchPolarity};
use crate::decode::{Field, FieldMap};
use crate::diagnostic::FieldError;
use crate::key::KeyPart;

/// The `key_by` equivalents of `key_type` and `scope` values.
const SCOPES: [(&str, &str); 6] = [
    ("user", "user_id"),
    ("user_id", "user_id"),
    ("ip", "ip"),
    ("api_key", "api_key"),
    ("endpoint", "endpoint"),
    ("global", "global"),
];

/// The counter key of a rule.
#[derive(Debug, Default)]
pub(super) struct KeyBy {
    /// The parts, if given.
    pub(super) parts: Option<Vec<KeyPart>>,
    /// The endpoint in a `key_pattern`.
    pub(super) endpoint: Option<Spanned<Condition>>,
    pub(super) pattern: Option<Spanned<String>>,
    /// The facts that the key names.
    pub(super) referenced_facts: Vec<FactReference>,
    /// Whether the rule has a key, valid or not.
    pub(super) is_present: bool,
}

impl KeyBy {
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        let forms = [fields.take("key_by"), fields.take("key_type"), fields.take("key_pattern")];
        let scope = fields.take("scope");
        let mut given = forms.iter().chain([&scope]).flatten();
        let first = given.next().cloned();
        for other in given.filter(|_| forms[0].is_some() || forms[1].is_some()) {
            let error = FieldError::new("the key of the counter is set twice");
            other.report(error.with_hint("only `key_by`"));
        }
        let mut key = Self { is_present: first.is_some(), ..Self::default() };
        match forms {
            [Some(key_by), ..] => key.parts = read_key_by(&key_by),
            [None, Some(key_type), _] => key.parts = read_scope(&key_type),
            [None, None, Some(pattern)] => key.read_pattern(&pattern, scope.as_ref()),
            [None, None, None] => key.parts = scope.and_then(|scope| read_scope(&scope)),
        }
        if let (Some(field), Some(parts)) = (&first, &key.parts) {
            key.referenced_facts = fact_references(parts, field);
        }
        key
    }

    fn read_pattern(&mut self, field: &Field<'_>, scope: Option<&Field<'_>>) {
        let Some(text) = field.non_empty_text() else {
            return;
        };
        self.pattern = Some(Spanned { value: text.to_owned(), span: field.span() });
        if let Some(endpoint) = text.strip_prefix("endpoint:").filter(|rest| rest.contains('/')) {
            let Some(pattern) = field.ok_or_report(EndpointPattern::parse(endpoint)) else {
                return;
            };
            let test = FactMatcher::Endpoint([pattern].into());
            let condition = Condition { polarity: MatchPolarity::Is, matcher: test };
            self.endpoint = Some(Spanned { value: condition, span: field.span() });
            // One counter for the endpoint, for all methods: the rule itself is the key.
            self.parts = Some(Vec::new());
        } else {
            self.parts = field.ok_or_report(parse_placeholders(text));
        }
        self.check_scope(scope);
    }

    fn check_scope(&self, scope: Option<&Field<'_>>) {
        let Some((scope, parts)) = scope.zip(self.parts.as_ref()) else {
            return;
        };
        let Some(word) = scope.choice(&SCOPES) else {
            return;
        };
        let agrees = match word {
            "global" => parts.is_empty() && self.endpoint.is_none(),
            "endpoint" if self.endpoint.is_some() => true,
            fact => parts.iter().any(|part| part.name() == fact),
        };
        if !agrees {
            let hint = "the `scope` that the pattern has, or leave `scope` out";
            let error = FieldError::new("this is not the scope of the `key_pattern` beside it");
            scope.report(error.with_found(scope.scalar().unwrap_or_default()).with_hint(hint));
        }
    }
}

/// The facts in a key, with the location of this field.
pub(super) fn fact_references(parts: &[KeyPart], field: &Field<'_>) -> Vec<FactReference> {
    parts.iter().map(|part| FactReference::new(part.name(), field.span(), field.path())).collect()
}

fn read_scope(field: &Field<'_>) -> Option<Vec<KeyPart>> {
    field.ok_or_report(parse(field.choice(&SCOPES)?))
}

/// Decodes `api_key`, `"user_id:endpoint"`, `[tenant, route]` or `global`.
pub(super) fn read_key_by(field: &Field<'_>) -> Option<Vec<KeyPart>> {
    if field.scalar().is_some() {
        return field.ok_or_report(parse(field.non_empty_text()?));
    }
    let names: Vec<_> = field.list()?.iter().map(Field::non_empty_text).collect();
    let names: Vec<&str> = names.into_iter().collect::<Option<_>>()?;
    field.ok_or_report(parse_parts(&names))
}

/// Parses the parts of a key, separated by `:`.
pub(super) fn parse(text: &str) -> Result<Vec<KeyPart>, FieldError> {
    parse_parts(&text.split(':').map(str::trim).collect::<Vec<_>>())
}

fn parse_parts(names: &[&str]) -> Result<Vec<KeyPart>, FieldError> {
    let whole = names.join(":");
    let wrong = |message: &str| FieldError::new(message).with_found(&whole);
    if names == ["global"] {
        return Ok(Vec::new());
    }
    if names.is_empty() {
        return Err(
            wrong("a key has at least one part").with_hint("`global` for one counter for all")
        );
    }
    if names.contains(&"global") {
        return Err(wrong("`global` cannot be combined with other parts")
            .with_hint("`global`, or the other parts"));
    }
    if names.iter().any(|name| name.is_empty() || name.contains(char::is_whitespace)) {
        let hint = "facts, such as `api_key`, `user_id:endpoint` or `[tenant, route]`";
        return Err(wrong("a part of a key is the name of a fact").with_hint(hint));
    }
    let names: Vec<_> = names.iter().map(|name| match_section::canonical_fact_name(name)).collect();
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        return Err(wrong("a part of the key is repeated").with_hint("each part once"));
    }
    Ok(names.into_iter().map(KeyPart::from_name).collect())
}

/// The facts in a pattern such as `user:{user_id}`. The text around them is only a label.
fn parse_placeholders(text: &str) -> Result<Vec<KeyPart>, FieldError> {
    const HINT: &str = "`user:{user_id}`, `ip:{ip}`, `endpoint:/path` or `global`";
    if text == "global" {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('{') {
        let unclosed = || FieldError::new("a `{` is not closed").with_found(text).with_hint(HINT);
        let (name, after) = after.split_once('}').ok_or_else(unclosed)?;
        names.push(name);
        rest = after;
    }
    if names.is_empty() {
        let error =
            FieldError::new("a pattern without `{…}` names one counter only").with_found(text);
        return Err(error.with_hint(format!("{HINT}; for one client alone, its facts in `match`")));
    }
    parse_parts(&names)
}
