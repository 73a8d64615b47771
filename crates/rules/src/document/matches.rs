//! The `match` of a rule: facts and the values they must have.

use super::facts::NamedFact;
use super::{Spanned, descriptor};
use crate::condition::{
    Condition, Nets, PathTest, Pattern, Sense, Test, TextTest, in_braces, parse_net,
};
use crate::decode::Field;
use crate::problem::Remark;
use crate::yaml::Value;

/// The name that a fact goes by; `plan` is how the seeds' table calls the tier.
pub(crate) fn fact_name(typed: &str) -> &str {
    match typed {
        "plan" => "tier",
        name => name,
    }
}

/// More facts than any request has; conditions are compared with each other.
const MAX_CONDITIONS: usize = 64;

/// Reads all conditions of a `match`, and the facts that they name.
pub(super) fn read(field: &Field<'_>) -> (Vec<Spanned<Condition>>, Vec<NamedFact>) {
    let Some(fields) = field.fields() else {
        return Default::default();
    };
    if fields.all().count() > MAX_CONDITIONS {
        let message = format!("a rule can ask for at most {MAX_CONDITIONS} facts");
        field.refuse(Remark::new(message).write("fewer"));
        return Default::default();
    }
    let named = |(name, span, field): (&str, _, Field<'_>)| {
        NamedFact::new(fact_name(name), span, field.path())
    };
    let read = |(name, _, field): (&str, _, Field<'_>)| match name {
        "descriptor" => descriptor::read(&field).into_iter().collect(),
        name => conditions(fact_name(name), &field),
    };
    (fields.all().flat_map(read).collect(), fields.all().map(named).collect())
}

/// Reads what is asked of one fact: values that it may have, values that it may not have, or both.
pub(super) fn conditions(fact: &str, field: &Field<'_>) -> Vec<Spanned<Condition>> {
    if !matches!(field.node().value, Value::Map(_)) {
        return condition(fact, Sense::Is, field).into_iter().collect();
    }
    let Some(mut fields) = field.fields() else {
        return Vec::new();
    };
    let (is, not) = (fields.take("is"), fields.take("not"));
    if is.is_none() && not.is_none() {
        fields.missing("not", "`not:` and the values that are excluded");
    }
    fields.finish();
    let both = [(Sense::Is, is), (Sense::IsNot, not)];
    both.into_iter().filter_map(|(sense, values)| condition(fact, sense, &values?)).collect()
}

/// Reads one condition; nothing also for one that every request passes.
fn condition(fact: &str, sense: Sense, field: &Field<'_>) -> Option<Spanned<Condition>> {
    let condition = Condition { sense, test: test(fact, field)? };
    if condition.foregone() == Some(false) {
        let remark = Remark::new("this excludes every request");
        field.refuse(remark.write("the endpoints that are meant, or leave it out"));
    }
    condition.foregone().is_none().then_some(Spanned { value: condition, span: field.span() })
}

fn test(fact: &str, field: &Field<'_>) -> Option<Test> {
    let items = field.one_or_more();
    let test = match fact {
        "ip" => Test::Ip(Nets::new(&read_all(&items, parse_net)?)),
        "endpoint" => Test::Endpoint(read_all(&items, Pattern::parse)?.into()),
        "method" => Test::Text(TextTest::new(fact, read_all(&items, method)?)),
        "path" => Test::Path(PathTest::new(read_all(&items, path)?)),
        _ => Test::Text(TextTest::new(fact, read_all(&items, |text| Ok(text.to_owned()))?)),
    };
    (!items.is_empty()).then_some(test)
}

/// All items, or none if any is faulty, after noting every fault.
fn read_all<T>(items: &[Field<'_>], read: impl Fn(&str) -> Result<T, Remark>) -> Option<Vec<T>> {
    let values: Vec<_> = items.iter().map(|item| item.accept(read(item.text()?))).collect();
    values.into_iter().collect()
}

/// A path or a glob of paths. What no path can be is not accepted: such a rule would match nothing.
fn path(text: &str) -> Result<String, Remark> {
    let wrong = |message: &str| Remark::new(message).found(text);
    if let Some(pattern) = in_braces(text) {
        let message = "placeholders are for `endpoint`";
        return Err(wrong(message).write(format!("`endpoint: {pattern}`")));
    }
    if text.contains(['{', '}']) {
        let message = "placeholders are for `endpoint`";
        return Err(wrong(message).write(format!("`endpoint: {text}`")));
    }
    if !text.starts_with(['/', '*']) {
        let message = "a path begins with `/`";
        return Err(wrong(message).write(format!("`/{text}`")));
    }
    Ok(text.to_owned())
}

fn method(text: &str) -> Result<String, Remark> {
    let upper = text.to_ascii_uppercase();
    let remark = if !upper.bytes().all(|byte| byte.is_ascii_uppercase() || b"-*".contains(&byte)) {
        Remark::new("this is not an HTTP method").write("`POST`, or `[GET, HEAD]` for several")
    } else if text != upper {
        Remark::new("methods are written in upper case").write(format!("`{upper}`"))
    } else {
        return Ok(upper);
    };
    Err(remark.found(text))
}
