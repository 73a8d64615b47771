//! Rules, one by one.

use http::StatusCode;
use serde_json::{Value as Json, json};
use tidegate_edge::path::percent_encoded;
use tidegate_edge::problem::Problem;
use tidegate_rules::problem::Problems;

use super::confirm::check_not_emptied;
use super::precondition::Seen;
use super::query::Query;
use super::reply::{self, Reply};
use super::{Asked, body};
use crate::book::{Book, Kind};
use crate::edit::Entry;
use crate::office::{Done, Fault};
use crate::paper;
use crate::record::{self, Placed};

impl Asked<'_> {
    /// All rules in their order.
    pub(super) fn rules(&self) -> Result<Reply, Problem> {
        let query = Query::of(&self.head.uri, &["after"])?;
        let (after, limit) = (query.text("after"), query.limit()? as usize);
        let book = self.office.book();
        let rules = paper::rules(&book);
        let from = match after {
            None => 0,
            Some(after) => {
                let at = rules.iter().position(|(id, _)| *id == after);
                at.map(|at| at + 1).ok_or_else(|| reply::missing("such rule to go on after"))?
            }
        };
        let page = &rules[from..rules.len().min(from + limit)];
        let views: Vec<Json> =
            page.iter().filter_map(|(id, _)| view(&book, id).map(|(view, _)| view)).collect();
        let next = page.last().filter(|_| from + page.len() < rules.len()).map(|(id, _)| *id);
        let total = rules.len();
        let told = json!({"version": book.version(), "total": total, "rules": views, "next": next});
        Ok(Reply::ok(&told).tagged(book.version()))
    }

    pub(super) fn rule(&self, id: &str) -> Result<Reply, Problem> {
        told(&self.office.book(), id)
    }

    pub(super) async fn create_rule(&self) -> Result<Reply, Problem> {
        let rule: Json = body::parse(self.body)?;
        let id = self.id_of(&rule)?;
        // One that was derived stays when what it was derived from is changed.
        let rule = paper::named(rule, &id);
        let done = self
            .change("created", |book| {
                if book.get(Kind::Rule, &id).is_some() {
                    return Err(Fault::Exists(format!("rule `{id}`")));
                }
                Ok(vec![placed(book, &id, &rule)])
            })
            .await?;
        done.or_told(|done| {
            let (view, version) = view(&done.book, &id).ok_or_else(|| gone(&id))?;
            Ok(Reply::created(&view, &format!("/v1/rules/{}", percent_encoded(&id)))
                .tagged(version))
        })
    }

    pub(super) async fn put_rule(&self, id: &str) -> Result<Reply, Problem> {
        let rule: Json = body::parse(self.body)?;
        let rule = paper::named(rule, id);
        let said = self.id_of(&rule)?;
        if said != id {
            let detail = format!("the rule calls itself `{said}`, and the path says `{id}`");
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with_field("id"));
        }
        let seen = Seen::of(&self.head.headers)?;
        self.changed(id, "replaced", |book| {
            seen.check(book.get(Kind::Rule, id))?;
            Ok(vec![placed(book, id, &rule)])
        })
        .await
    }

    /// A JSON merge patch (RFC 7396).
    pub(super) async fn patch_rule(&self, id: &str) -> Result<Reply, Problem> {
        let patch: serde_json::Map<String, Json> = body::parse(self.body)?;
        let mut said = paper::IDS.into_iter().filter_map(|name| Some((name, patch.get(name)?)));
        if let Some((name, _)) = said.find(|(_, said)| *said != id) {
            let detail = "a rule keeps its id; make another and remove this one";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with_field(name));
        }
        let patch = Json::Object(patch);
        let seen = Seen::of(&self.head.headers)?;
        self.changed(id, "patched", |book| {
            let Placed { mut rule, .. } = known(book, id)?;
            seen.check(book.get(Kind::Rule, id))?;
            merge(&mut rule, &patch);
            Ok(vec![placed(book, id, &rule)])
        })
        .await
    }

    pub(super) async fn switch_rule(&self, id: &str, active: bool) -> Result<Reply, Problem> {
        let why = if active { "enabled" } else { "disabled" };
        let seen = Seen::of(&self.head.headers)?;
        self.changed(id, why, |book| {
            let Placed { mut rule, .. } = known(book, id)?;
            seen.check(book.get(Kind::Rule, id))?;
            if let Json::Object(fields) = &mut rule {
                fields.insert("is_active".to_owned(), active.into());
            }
            Ok(vec![placed(book, id, &rule)])
        })
        .await
    }

    pub(super) async fn delete_rule(&self, id: &str) -> Result<Reply, Problem> {
        let seen = Seen::of(&self.head.headers)?;
        let done = self
            .change("deleted", |book| {
                known(book, id)?;
                seen.check(book.get(Kind::Rule, id))?;
                Ok(vec![Entry::remove(Kind::Rule, id)])
            })
            .await?;
        done.or_told(|done| Ok(Reply::ok(&json!({"version": done.version, "deleted": id}))))
    }

    /// A change, or the answer that says why there is none.
    pub(super) async fn change(
        &self,
        why: &str,
        make: impl Fn(&Book) -> Result<Vec<Entry>, Fault>,
    ) -> Result<Changed, Problem> {
        let confirmed = self.confirms_empty()?;
        let make = |book: &Book| {
            let entries = make(book)?;
            if !confirmed {
                check_not_emptied(book, &entries)?;
            }
            Ok(entries)
        };
        match self.office.edit(&self.by(why)?, make).await {
            Ok(done) => Ok(Changed::Done(done)),
            Err(fault) => reply::fault(&fault).map(Changed::Told),
        }
    }

    async fn changed(
        &self,
        id: &str,
        why: &str,
        make: impl Fn(&Book) -> Result<Vec<Entry>, Fault>,
    ) -> Result<Reply, Problem> {
        self.change(why, make).await?.or_told(|done| told(&done.book, id))
    }

    /// The id that a rule has or gets.
    fn id_of(&self, rule: &Json) -> Result<String, Problem> {
        // The facts that the rule may name are in these settings.
        let book = self.office.book();
        let setting = |name: &str| {
            book.get(Kind::Setting, name).and_then(|kept| record::read::<Json>(&kept.value))
        };
        let (identity, facts) = (setting("identity"), setting("facts"));
        let document = json!({"identity": identity, "facts": facts, "rules": [rule]}).to_string();
        // What is wrong with it is told with all else.
        let said = paper::IDS.into_iter().find_map(|name| rule.get(name)?.as_str());
        if let Some(said) = said {
            return Ok(said.to_owned());
        }
        match self.office.compile_rules(&document) {
            Ok(rules) => Ok(rules.rules().first().map_or("", |rule| rule.id()).to_owned()),
            Err(problems) => Err(first_flaw(problems, "rules[0]")),
        }
    }
}

/// The first thing that is wrong with the only entry of a list in a document.
pub(super) fn first_flaw(problems: Problems, entry: &str) -> Problem {
    let first = problems.list.into_iter().next();
    let (message, field) =
        first.map_or_else(Default::default, |first| (first.message, first.field));
    let field = field.trim_start_matches(entry).trim_start_matches('.').to_owned();
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message).with_field(field)
}

/// What came of a change.
pub(super) enum Changed {
    Done(Done),
    /// Nothing; the answer says why.
    Told(Reply),
}

impl Changed {
    pub(super) fn or_told(
        self,
        tell: impl FnOnce(Done) -> Result<Reply, Problem>,
    ) -> Result<Reply, Problem> {
        match self {
            Self::Done(done) => tell(done),
            Self::Told(reply) => Ok(reply),
        }
    }
}

fn told(book: &Book, id: &str) -> Result<Reply, Problem> {
    let (view, version) = view(book, id).ok_or_else(|| gone(id))?;
    Ok(Reply::ok(&view).tagged(version))
}

fn gone(id: &str) -> Problem {
    reply::missing(&format!("rule `{id}`"))
}

fn view(book: &Book, id: &str) -> Option<(Json, u64)> {
    let kept = book.get(Kind::Rule, id)?;
    let Placed { position, rule } = record::read(&kept.value)?;
    let view = json!({"id": id, "version": kept.version, "position": position, "rule": rule});
    Some((view, kept.version))
}

fn known(book: &Book, id: &str) -> Result<Placed, Fault> {
    let kept = book.get(Kind::Rule, id).and_then(|kept| record::read(&kept.value));
    kept.ok_or_else(|| Fault::Missing(format!("rule `{id}`")))
}

/// A rule in its place: where it is, or behind all others.
fn placed(book: &Book, id: &str, rule: &Json) -> Entry {
    let position = known(book, id).map(|placed| placed.position).unwrap_or_else(|_| {
        let rules = paper::rules(book);
        rules.last().map_or(0, |(_, placed)| placed.position + 1)
    });
    Entry::put(Kind::Rule, id, &Placed { position, rule: rule.clone() })
}

fn merge(target: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Json::Object(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.shift_remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Json::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7396, appendix A, as far as they concern objects.
    #[test]
    fn patches_merge() {
        for (target, patch, result) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
            (json!({"a":"c"}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
        ] {
            let mut merged = target;
            merge(&mut merged, &patch);
            assert_eq!(merged, result);
        }
    }
}
