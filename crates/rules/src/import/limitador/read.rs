//! A limits file as it was typed.

use crate::decode::{Field, Findings};
use crate::import::gaps::{Gaps, quoted};
use crate::problem::Remark;
use crate::yaml::{self, Span, Value};

/// One limit.
#[derive(Debug)]
pub(super) struct TypedLimit {
    pub(super) span: Span,
    pub(super) path: String,
    /// What people call it: its `id`, or its `name`.
    pub(super) names: Vec<String>,
    pub(super) namespace: String,
    pub(super) max_value: u64,
    pub(super) seconds: u64,
    pub(super) conditions: Vec<Expression>,
    pub(super) variables: Vec<Expression>,
}

/// A piece of CEL and where it stands.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) span: Span,
    pub(super) path: String,
}

const FIELDS: [&str; 7] =
    ["id", "name", "namespace", "max_value", "seconds", "conditions", "variables"];

/// Reads the list of limits; what is wrong with it goes to `findings`.
pub(super) fn limits(text: &str, findings: &Findings<'_>, gaps: &mut Gaps<'_>) -> Vec<TypedLimit> {
    let Some(root) = yaml::parse(text, findings).filter(|root| !root.is_null()) else {
        return Vec::new();
    };
    let field = Field::new(&root, "", findings);
    if !matches!(root.value, Value::List(_)) {
        let remark = Remark::new("a limits file is a list");
        field.refuse(remark.write("`- namespace: …` for each limit"));
        return Vec::new();
    }
    let items = field.list().unwrap_or_default();
    items.iter().filter_map(|item| limit(item, gaps)).collect()
}

fn limit(field: &Field<'_>, gaps: &mut Gaps<'_>) -> Option<TypedLimit> {
    let mut fields = field.fields()?;
    let names = [fields.take("id"), fields.take("name")];
    let namespace = fields.require("namespace", "`namespace:` and the domain of Envoy's filter");
    let most = fields.require("max_value", "`max_value: 100`");
    let seconds = fields.require("seconds", "`seconds: 60`");
    let [conditions, variables] = ["conditions", "variables"].map(|name| fields.take(name));
    for (name, _, other) in fields.all().filter(|(name, _, _)| !FIELDS.contains(name)) {
        let why = format!("{} says nothing to a limit that is known here", quoted(name));
        gaps.at(&other, &why, "leave it out, if the limit is meant without it");
    }
    let names = names.into_iter().flatten().filter_map(|name| Some(name.text()?.to_owned()));
    let names = names.collect();
    let namespace = namespace.and_then(|field| field.word());
    let most = most.and_then(|field| field.integer(0, u64::MAX));
    let seconds = seconds.and_then(|field| field.integer(1, u64::MAX));
    let (conditions, variables) = (expressions(conditions), expressions(variables));
    Some(TypedLimit {
        span: field.span(),
        path: field.path().to_owned(),
        names,
        namespace: namespace?.to_owned(),
        max_value: most?,
        seconds: seconds?,
        conditions: conditions?,
        variables: variables?,
    })
}

fn expressions(field: Option<Field<'_>>) -> Option<Vec<Expression>> {
    let Some(field) = field else {
        return Some(Vec::new());
    };
    let items: Vec<_> = field.list()?.iter().map(expression).collect();
    items.into_iter().collect()
}

fn expression(field: &Field<'_>) -> Option<Expression> {
    let text = field.word()?.to_owned();
    Some(Expression { text, span: field.span(), path: field.path().to_owned() })
}
