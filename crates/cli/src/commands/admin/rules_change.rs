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

/// Deletes a rule, after showing it and asking for confirmation.
///
/// # Errors
/// If the user declines or the API returns an error.
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
    let response = block_on(api.send_change(Method::DELETE, &path, String::new(), seen.etag))?;
    apply::report_version(&api, &response, "deleted")
}

/// Enables or disables a rule.
///
/// # Errors
/// If the API returns an error.
pub(super) fn set_rule_active(
    args: &RulesSwitchArgs,
    to: &str,
) -> Result<CommandOutcome, CommandError> {
    let (api, id) =
        (AdminClient::with_author(&args.rule.admin_api, &args.authorship)?, &args.rule.id);
    let path = format!("/v1/rules/{}/{to}", percent_encode(id));
    let seen = block_on(rules::get_rule(&api, id))?.etag;
    let response = block_on(api.send_change(Method::POST, &path, String::new(), seen))?;
    let text = format!("{GOOD}{to}d{GOOD:#}: rule {}\n", escape_unprintable(id));
    output::print_text(&if api.json { format!("{}\n", response.body) } else { text })?;
    Ok(CommandOutcome::Success)
}

/// The difference between a version and the latest one.
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

/// Rolls back to a version, after showing the difference and asking for confirmation.
///
/// # Errors
/// If there is no such version, the user declines, or the rules changed meanwhile.
pub(super) fn rollback(args: &RulesRollbackArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::with_author(&args.admin_api, &args.authorship)?.allow_empty(&args.empty);
    let to = args.version;
    block_on(api.check_editable())?;
    let (head, diff) = block_on(async {
        let LatestVersionsResponse { versions } = api.get("/v1/versions?limit=1").await?.parse()?;
        let head = versions.first().map_or(0, |latest| latest.version);
        let path = format!("/v1/versions/{to}?from={head}");
        let response = api
            .get(&path)
            .await
            .map_err(|failure| api_errors::version_not_found(failure, to, head))?;
        let VersionDiffResponse { diff } = response.parse()?;
        Ok((head, RulesDiff::new(diff, &pagination::fetch_rules(&api).await?)))
    })?;
    if diff.is_empty() {
        let empty = json!({"version": head, "changes": []});
        let text = format!("nothing to change: version {head} is identical to version {to}\n");
        output::print_text(&if api.json { format!("{empty}\n") } else { text })?;
        return Ok(CommandOutcome::Success);
    }
    confirm::show_changes(&diff.render(), api.json)?;
    confirm::prompt_to_continue(&format!("Roll back to version {to}?"), &args.confirm)?;
    let seen = HeaderValue::try_from(format!("\"{head}\"")).ok();
    let path = format!("/v1/versions/{to}/rollback");
    let response = block_on(api.send_change(Method::POST, &path, String::new(), seen))?;
    apply::report_version(&api, &response, &format!("rolled back to version {to}"))
}
