//! `tidegate rules diff` and `tidegate rules apply`: compare a document with the active rules, and
//! apply it.

use http::{HeaderValue, Method};
use serde::Deserialize;

use super::api::{AdminClient, AdminResponse, block_on};
use super::api_errors::RuleValidationError;
use super::diff::{EntryChange, RulesDiff};
use super::{confirm, pagination};
use crate::cli::{RulesApplyArgs, RulesDiffArgs};
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, GOOD};
use tidegate_server::rule_source::{parse_utf8, read_document};

/// The response body of `/v1/validate`.
#[derive(Deserialize)]
#[serde(untagged)]
enum ValidateResponse {
    Valid { version: u64, changes: Vec<EntryChange> },
    Invalid { errors: Vec<RuleValidationError> },
}

/// A document and the changes that it would make.
struct DocumentComparison {
    text: String,
    response: AdminResponse,
    /// The version that it was compared with.
    version: u64,
    diff: RulesDiff,
}

/// Shows what a document would change.
///
/// # Errors
/// If the document is invalid or the API returns an error.
pub(super) fn diff(args: &RulesDiffArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::new(&args.admin_api)?;
    let compared = block_on(compare_document(&api, args))?;
    if api.json {
        output::print_text(&format!("{}\n", compared.response.body))?;
    } else if compared.diff.is_empty() {
        output::print_text(&format!("no difference from version {}\n", compared.version))?;
    } else {
        output::print_text(&compared.diff.render())?;
    }
    Ok(compared.diff.is_empty().into())
}

/// Replaces the rules with those of a document, after confirmation.
///
/// # Errors
/// If the document is invalid, the user declines, or the rules changed meanwhile.
pub(super) fn apply(args: &RulesApplyArgs) -> Result<CommandOutcome, CommandError> {
    let api =
        AdminClient::with_author(&args.diff.admin_api, &args.authorship)?.allow_empty(&args.empty);
    let DocumentComparison { text, response, version, diff } =
        block_on(compare_document(&api, &args.diff))?;
    if diff.is_empty() {
        let message = format!("nothing to change: version {version} is identical\n");
        output::print_text(&if api.json { format!("{}\n", response.body) } else { message })?;
        return Ok(CommandOutcome::Success);
    }
    block_on(api.check_editable())?;
    confirm::show_changes(&diff.render(), api.json)?;
    confirm::prompt_to_continue("Apply?", &args.confirm)?;
    let seen = HeaderValue::try_from(format!("\"{version}\"")).ok();
    let response = block_on(api.send_change(Method::PUT, "/v1/document", text, seen))?;
    report_version(&api, &response, "applied")
}

/// Prints the version that a change created.
///
/// # Errors
/// If the response cannot be parsed or printed.
pub(super) fn report_version(
    api: &AdminClient,
    response: &AdminResponse,
    what: &str,
) -> Result<CommandOutcome, CommandError> {
    #[derive(Deserialize)]
    struct CommittedVersion {
        version: u64,
        /// The ID of the entry that was set.
        id: Option<String>,
        #[serde(default)]
        ids: Vec<String>,
    }
    let CommittedVersion { version, id, ids } = response.parse()?;
    let which: String =
        id.iter().chain(&ids).map(|id| format!(" {}", output::escape_unprintable(id))).collect();
    let text = format!("{GOOD}{what}{GOOD:#}{which}: version {version} is in force\n");
    output::print_text(&if api.json { format!("{}\n", response.body) } else { text })?;
    Ok(CommandOutcome::Success)
}

async fn compare_document(
    api: &AdminClient,
    args: &RulesDiffArgs,
) -> Result<DocumentComparison, CommandError> {
    let (name, bytes) = (args.file.display().to_string(), read_document(&args.file)?);
    let text = parse_utf8(&name, &bytes)?.to_owned();
    let response = api.send_change(Method::POST, "/v1/validate", text.clone(), None).await?;
    match response.parse()? {
        ValidateResponse::Valid { version, changes } => {
            let diff = RulesDiff::new(changes, &pagination::fetch_rules(api).await?);
            Ok(DocumentComparison { text, response, version, diff })
        }
        ValidateResponse::Invalid { .. } if api.json => {
            output::print_text(&format!("{}\n", response.body))?;
            Err(CommandError::Rejected(format!("{name} is not valid")))
        }
        ValidateResponse::Invalid { errors } => {
            let lines: Vec<String> = errors.iter().map(RuleValidationError::render).collect();
            Err(CommandError::Rejected(format!("{name} is not valid:\n  {}", lines.join("\n  "))))
        }
    }
}
