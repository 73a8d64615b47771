//! Whose counter a rule charges: `key_by`, `key_type`, or `scope` and `key_pattern`.

use super::facts::NamedFact;
use super::{Spanned, matches};
use crate::condition::{Condition, Pattern, Sense, Test};
use crate::decode::{Field, Fields};
use crate::key::KeyPart;
use crate::problem::Remark;

/// How the words of `key_type` and `scope` read as `key_by`.
const SCOPES: [(&str, &str); 6] = [
    ("user", "user_id"),
    ("user_id", "user_id"),
    ("ip", "ip"),
    ("api_key", "api_key"),
    ("endpoint", "endpoint"),
    ("global", "global"),
];

/// What a rule says of its key.
#[derive(Debug, Default)]
pub(super) struct KeyBy {
    /// The parts, if anything was said.
    pub(super) parts: Option<Vec<KeyPart>>,
    /// The endpoint that a `key_pattern` names.
    pub(super) endpoint: Option<Spanned<Condition>>,
    pub(super) pattern: Option<Spanned<String>>,
    /// The facts that it names.
    pub(super) named: Vec<NamedFact>,
    /// Whether it was said at all, also if wrongly.
    pub(super) said: bool,
}

impl KeyBy {
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        let forms = [fields.take("key_by"), fields.take("key_type"), fields.take("key_pattern")];
        let scope = fields.take("scope");
        let mut given = forms.iter().chain([&scope]).flatten();
        let first = given.next().cloned();
        for other in given.filter(|_| forms[0].is_some() || forms[1].is_some()) {
            let remark = Remark::new("whose counter is meant is said twice");
            other.refuse(remark.write("only `key_by`"));
        }
        let mut key = Self { said: first.is_some(), ..Self::default() };
        match forms {
            [Some(key_by), ..] => key.parts = read_key_by(&key_by),
            [None, Some(key_type), _] => key.parts = read_scope(&key_type),
            [None, None, Some(pattern)] => key.read_pattern(&pattern, scope.as_ref()),
            [None, None, None] => key.parts = scope.and_then(|scope| read_scope(&scope)),
        }
        if let (Some(field), Some(parts)) = (&first, &key.parts) {
            key.named = named(parts, field);
        }
        key
    }

    fn read_pattern(&mut self, field: &Field<'_>, scope: Option<&Field<'_>>) {
        let Some(text) = field.word() else {
            return;
        };
        self.pattern = Some(Spanned { value: text.to_owned(), span: field.span() });
        if let Some(endpoint) = text.strip_prefix("endpoint:").filter(|rest| rest.contains('/')) {
            let Some(pattern) = field.accept(Pattern::parse(endpoint)) else {
                return;
            };
            let test = Test::Endpoint([pattern].into());
            let condition = Condition { sense: Sense::Is, test };
            self.endpoint = Some(Spanned { value: condition, span: field.span() });
            // One counter for the endpoint, whatever the method: the rule itself is the key.
            self.parts = Some(Vec::new());
        } else {
            self.parts = field.accept(placeholders(text));
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
            let remark = Remark::new("this is not the scope of the `key_pattern` beside it");
            scope.refuse(remark.found(scope.scalar().unwrap_or_default()).write(hint));
        }
    }
}

/// The facts that a key is made of, named by this field.
pub(super) fn named(parts: &[KeyPart], field: &Field<'_>) -> Vec<NamedFact> {
    parts.iter().map(|part| NamedFact::new(part.name(), field.span(), field.path())).collect()
}

fn read_scope(field: &Field<'_>) -> Option<Vec<KeyPart>> {
    field.accept(parse(field.choice(&SCOPES)?))
}

/// Reads `api_key`, `"user_id:endpoint"`, `[tenant, route]` or `global`.
pub(super) fn read_key_by(field: &Field<'_>) -> Option<Vec<KeyPart>> {
    if field.scalar().is_some() {
        return field.accept(parse(field.word()?));
    }
    let names: Vec<_> = field.list()?.iter().map(Field::word).collect();
    let names: Vec<&str> = names.into_iter().collect::<Option<_>>()?;
    field.accept(parts(&names))
}

/// Reads the parts of a key that are joined by `:`.
pub(super) fn parse(text: &str) -> Result<Vec<KeyPart>, Remark> {
    parts(&text.split(':').map(str::trim).collect::<Vec<_>>())
}

fn parts(names: &[&str]) -> Result<Vec<KeyPart>, Remark> {
    let whole = names.join(":");
    let wrong = |message: &str| Remark::new(message).found(&whole);
    if names == ["global"] {
        return Ok(Vec::new());
    }
    if names.is_empty() {
        return Err(wrong("a key has at least one part").write("`global` for one counter for all"));
    }
    if names.contains(&"global") {
        return Err(wrong("`global` stands alone").write("`global`, or the other parts"));
    }
    if names.iter().any(|name| name.is_empty() || name.contains(char::is_whitespace)) {
        let hint = "facts, such as `api_key`, `user_id:endpoint` or `[tenant, route]`";
        return Err(wrong("a part of a key is the name of a fact").write(hint));
    }
    let names: Vec<_> = names.iter().map(|name| matches::fact_name(name)).collect();
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        return Err(wrong("a part of the key comes twice").write("each part once"));
    }
    Ok(names.into_iter().map(KeyPart::named).collect())
}

/// The facts in a pattern such as `user:{user_id}`; the words between them only label.
fn placeholders(text: &str) -> Result<Vec<KeyPart>, Remark> {
    const HINT: &str = "`user:{user_id}`, `ip:{ip}`, `endpoint:/path` or `global`";
    if text == "global" {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('{') {
        let unclosed = || Remark::new("a `{` is not closed").found(text).write(HINT);
        let (name, after) = after.split_once('}').ok_or_else(unclosed)?;
        names.push(name);
        rest = after;
    }
    if names.is_empty() {
        let remark = Remark::new("a pattern without `{…}` names one counter only").found(text);
        return Err(remark.write(format!("{HINT}; for one client alone, its facts in `match`")));
    }
    parts(&names)
}
