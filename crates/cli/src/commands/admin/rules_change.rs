//! `tidegate rules delete`, `enable`, `disable` and `rollback`.

use http::{HeaderValue, Method};
use serde::Deserialize;
use serde_json::json;
use tidegate_rules::yaml_writer;
use tidegate_web::percent::percent_encode;

use super::api::{AdminClient, block_on};
use super::diff::{EntryChange, RulesDiff};
use super::{api_errors, apply, confirm, pagination, rules};
use crate::cli::{RulesDeleteArgs, RulesRollbackArgs, RulesSwitchArgs};
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, GOOD, escape_unprintable};

/// Removes a rule after showing it.
///
/// # Errors
/// When it is not removed.
pub(super) fn delete(args: &RulesDeleteArgs) -> Result<CommandOutcome, CommandError> {
    let api =
        AdminClient::with_author(&args.rule.admin_api, &args.authorship)?.allow_empty(&args.empty);
    let id = &args.rule.id;
    let seen = block_on(rules::get_rule(&api, id))?;
    block_on(api.check_editable())?;
    let rule = seen.parse_json()?["rule"].take();
    confirm::show_changes(&yaml_writer::render_yaml(&json!({"rules": [rule]})), api.json)?;
    confirm::prompt_to_continue("Delete this rule?", &args.confirm)?;
    let path = format!("/v1/rules/{}", percent_encode(id));
    let told = block_on(api.send_change(Method::DELETE, &path, String::new(), seen.etag))?;
    apply::report_version(&api, &told, "deleted")
}

/// Enables or disables a rule.
///
/// # Errors
/// When it is not done.
pub(super) fn set_rule_active(
    args: &RulesSwitchArgs,
    to: &str,
) -> Result<CommandOutcome, CommandError> {
    let (api, id) =
        (AdminClient::with_author(&args.rule.admin_api, &args.authorship)?, &args.rule.id);
    let path = format!("/v1/rules/{}/{to}", percent_encode(id));
    let seen = block_on(rules::get_rule(&api, id))?.etag;
    let told = block_on(api.send_change(Method::POST, &path, String::new(), seen))?;
    let text = format!("{GOOD}{to}d{GOOD:#}: rule {}\n", escape_unprintable(id));
    output::print_text(&if api.json { format!("{}\n", told.body) } else { text })?;
    Ok(CommandOutcome::Success)
}

/// What a version was, compared with the latest.
#[derive(Deserialize)]
struct VersionDiffResponse {
    diff: Vec<EntryChange>,
}

#[derive(Deserialize)]
struct LatestVersionsResponse {
    versions: Vec<VersionNumber>,
}

#[derive(Deserialize)]
struct VersionNumber {
    version: u64,
}

/// Goes back to a version after showing what that changes.
///
/// # Errors
/// When there is no such version, or somebody changed something meanwhile.
pub(super) fn rollback(args: &RulesRollbackArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::with_author(&args.admin_api, &args.authorship)?.allow_empty(&args.empty);
    let to = args.version;
    block_on(api.check_editable())?;
    let (head, diff) = block_on(async {
        let LatestVersionsResponse { versions } = api.get("/v1/versions?limit=1").await?.parse()?;
        let head = versions.first().map_or(0, |latest| latest.version);
        let path = format!("/v1/versions/{to}?from={head}");
        let back = api
            .get(&path)
            .await
            .map_err(|failure| api_errors::version_not_found(failure, to, head))?;
        let VersionDiffResponse { diff } = back.parse()?;
        Ok((head, RulesDiff::new(diff, &pagination::fetch_rules(&api).await?)))
    })?;
    if diff.is_empty() {
        let nothing = json!({"version": head, "changes": []});
        let text = format!("nothing to change: version {head} says the same as version {to}\n");
        output::print_text(&if api.json { format!("{nothing}\n") } else { text })?;
        return Ok(CommandOutcome::Success);
    }
    confirm::show_changes(&diff.render(), api.json)?;
    confirm::prompt_to_continue(&format!("Go back to version {to}?"), &args.confirm)?;
    let seen = HeaderValue::try_from(format!("\"{head}\"")).ok();
    let path = format!("/v1/versions/{to}/rollback");
    let told = block_on(api.send_change(Method::POST, &path, String::new(), seen))?;
    apply::report_version(&api, &told, &format!("went back to version {to}"))
}
