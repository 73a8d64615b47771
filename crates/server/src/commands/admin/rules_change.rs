//! `tidegate rules delete`, `enable`, `disable` and `rollback`.

use http::{HeaderValue, Method};
use serde::Deserialize;
use serde_json::json;
use tidegate_control::yaml_text;
use tidegate_edge::path::percent_encoded;

use super::api::{Api, wait};
use super::diff::{Change, Diff};
use super::{apply, confirm, pages, refusal, rules};
use crate::Outcome;
use crate::cli::{RulesDeleteArgs, RulesRollbackArgs, RulesSwitchArgs};
use crate::failure::Failure;
use crate::output::{self, GOOD, printable};

/// Removes a rule after showing it.
///
/// # Errors
/// When it is not removed.
pub(super) fn delete(args: &RulesDeleteArgs) -> Result<Outcome, Failure> {
    let api = Api::signed(&args.rule.office, &args.sign)?.confirming(&args.empty);
    let id = &args.rule.id;
    let seen = wait(rules::one(&api, id))?;
    wait(api.check_editable())?;
    let rule = seen.value()?["rule"].take();
    confirm::show(&yaml_text::document(&json!({"rules": [rule]})), api.json)?;
    confirm::ask("Delete this rule?", &args.confirm)?;
    let path = format!("/v1/rules/{}", percent_encoded(id));
    let told = wait(api.change(Method::DELETE, &path, String::new(), seen.tag))?;
    apply::done(&api, &told, "deleted")
}

/// Enables or disables a rule.
///
/// # Errors
/// When it is not done.
pub(super) fn switch(args: &RulesSwitchArgs, to: &str) -> Result<Outcome, Failure> {
    let (api, id) = (Api::signed(&args.rule.office, &args.sign)?, &args.rule.id);
    let path = format!("/v1/rules/{}/{to}", percent_encoded(id));
    let seen = wait(rules::one(&api, id))?.tag;
    let told = wait(api.change(Method::POST, &path, String::new(), seen))?;
    let text = format!("{GOOD}{to}d{GOOD:#}: rule {}\n", printable(id));
    output::text(&if api.json { format!("{}\n", told.body) } else { text })?;
    Ok(Outcome::Well)
}

/// What a version was, compared with the latest.
#[derive(Deserialize)]
struct Back {
    diff: Vec<Change>,
}

#[derive(Deserialize)]
struct Versions {
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// Goes back to a version after showing what that changes.
///
/// # Errors
/// When there is no such version, or somebody changed something meanwhile.
pub(super) fn rollback(args: &RulesRollbackArgs) -> Result<Outcome, Failure> {
    let api = Api::signed(&args.office, &args.sign)?.confirming(&args.empty);
    let to = args.version;
    wait(api.check_editable())?;
    let (head, diff) = wait(async {
        let Versions { versions } = api.get("/v1/versions?limit=1").await?.read()?;
        let head = versions.first().map_or(0, |latest| latest.version);
        let path = format!("/v1/versions/{to}?from={head}");
        let back =
            api.get(&path).await.map_err(|failure| refusal::no_version(failure, to, head))?;
        let Back { diff } = back.read()?;
        Ok((head, Diff::of(diff, &pages::rules(&api).await?)))
    })?;
    if diff.is_empty() {
        let nothing = json!({"version": head, "changes": []});
        let text = format!("nothing to change: version {head} says the same as version {to}\n");
        output::text(&if api.json { format!("{nothing}\n") } else { text })?;
        return Ok(Outcome::Well);
    }
    confirm::show(&diff.rendered(), api.json)?;
    confirm::ask(&format!("Go back to version {to}?"), &args.confirm)?;
    let seen = HeaderValue::try_from(format!("\"{head}\"")).ok();
    let path = format!("/v1/versions/{to}/rollback");
    let told = wait(api.change(Method::POST, &path, String::new(), seen))?;
    apply::done(&api, &told, &format!("went back to version {to}"))
}
