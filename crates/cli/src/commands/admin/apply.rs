//! `tidegate rules diff` and `tidegate rules apply`: a document against the rules in force.

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

/// What the API says about a document.
#[derive(Deserialize)]
#[serde(untagged)]
enum ValidateResponse {
    Valid { version: u64, changes: Vec<EntryChange> },
    Invalid { errors: Vec<RuleValidationError> },
}

/// A document, and what it would change.
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
/// When it is not valid, or nobody tells.
pub(super) fn diff(args: &RulesDiffArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::new(&args.admin_api)?;
    let compared = block_on(compare_document(&api, args))?;
    if api.json {
        output::print_text(&format!("{}\n", compared.response.body))?;
    } else if compared.diff.is_empty() {
        output::print_text(&format!("no difference to version {}\n", compared.version))?;
    } else {
        output::print_text(&compared.diff.render())?;
    }
    Ok(compared.diff.is_empty().into())
}

/// Makes the rules what a document says.
///
/// # Errors
/// When it is not valid, somebody says no, or somebody else changed the rules meanwhile.
pub(super) fn apply(args: &RulesApplyArgs) -> Result<CommandOutcome, CommandError> {
    let api =
        AdminClient::with_author(&args.diff.admin_api, &args.authorship)?.allow_empty(&args.empty);
    let DocumentComparison { text, response: told, version, diff } =
        block_on(compare_document(&api, &args.diff))?;
    if diff.is_empty() {
        let nothing = format!("nothing to change: version {version} says the same\n");
        output::print_text(&if api.json { format!("{}\n", told.body) } else { nothing })?;
        return Ok(CommandOutcome::Success);
    }
    block_on(api.check_editable())?;
    confirm::show_changes(&diff.render(), api.json)?;
    confirm::prompt_to_continue("Apply?", &args.confirm)?;
    let seen = HeaderValue::try_from(format!("\"{version}\"")).ok();
    let told = block_on(api.send_change(Method::PUT, "/v1/document", text, seen))?;
    report_version(&api, &told, "applied")
}

/// Says which version a change has made.
///
/// # Errors
/// When the answer is none.
pub(super) fn report_version(
    api: &AdminClient,
    told: &AdminResponse,
    what: &str,
) -> Result<CommandOutcome, CommandError> {
    #[derive(Deserialize)]
    struct CommittedVersion {
        version: u64,
        /// Of what was set.
        id: Option<String>,
        #[serde(default)]
        ids: Vec<String>,
    }
    let CommittedVersion { version, id, ids } = told.parse()?;
    let which: String =
        id.iter().chain(&ids).map(|id| format!(" {}", output::escape_unprintable(id))).collect();
    let text = format!("{GOOD}{what}{GOOD:#}{which}: version {version} is in force\n");
    output::print_text(&if api.json { format!("{}\n", told.body) } else { text })?;
    Ok(CommandOutcome::Success)
}

async fn compare_document(
    api: &AdminClient,
    args: &RulesDiffArgs,
) -> Result<DocumentComparison, CommandError> {
    let (name, bytes) = (args.file.display().to_string(), read_document(&args.file)?);
    let text = parse_utf8(&name, &bytes)?.to_owned();
    let told = api.send_change(Method::POST, "/v1/validate", text.clone(), None).await?;
    match told.parse()? {
        ValidateResponse::Valid { version, changes } => {
            let diff = RulesDiff::new(changes, &pagination::fetch_rules(api).await?);
            Ok(DocumentComparison { text, response: told, version, diff })
        }
        ValidateResponse::Invalid { .. } if api.json => {
            output::print_text(&format!("{}\n", told.body))?;
            Err(CommandError::Rejected(format!("{name} is not valid")))
        }
        ValidateResponse::Invalid { errors } => {
            let told: Vec<String> = errors.iter().map(RuleValidationError::render).collect();
            Err(CommandError::Rejected(format!("{name} is not valid:\n  {}", told.join("\n  "))))
        }
    }
}
