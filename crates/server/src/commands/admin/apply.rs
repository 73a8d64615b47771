//! `tidegate rules diff` and `tidegate rules apply`: a document against the rules in force.

use http::{HeaderValue, Method};
use serde::Deserialize;

use super::api::{Api, Told, wait};
use super::diff::{Change, Diff};
use super::refusal::Flaw;
use super::{confirm, pages};
use crate::Outcome;
use crate::cli::{RulesApplyArgs, RulesDiffArgs};
use crate::failure::Failure;
use crate::output::{self, GOOD};
use crate::source::{read_document, utf8};

/// What the API says about a document.
#[derive(Deserialize)]
#[serde(untagged)]
enum Validated {
    Valid { version: u64, changes: Vec<Change> },
    Invalid { errors: Vec<Flaw> },
}

/// A document, and what it would change.
struct Compared {
    text: String,
    told: Told,
    /// The version that it was compared with.
    version: u64,
    diff: Diff,
}

/// Shows what a document would change.
///
/// # Errors
/// When it is not valid, or nobody tells.
pub(super) fn diff(args: &RulesDiffArgs) -> Result<Outcome, Failure> {
    let api = Api::new(&args.office)?;
    let compared = wait(compare(&api, args))?;
    if api.json {
        output::text(&format!("{}\n", compared.told.body))?;
    } else if compared.diff.is_empty() {
        output::text(&format!("no difference to version {}\n", compared.version))?;
    } else {
        output::text(&compared.diff.rendered())?;
    }
    Ok(compared.diff.is_empty().into())
}

/// Makes the rules what a document says.
///
/// # Errors
/// When it is not valid, somebody says no, or somebody else changed the rules meanwhile.
pub(super) fn apply(args: &RulesApplyArgs) -> Result<Outcome, Failure> {
    let api = Api::signed(&args.diff.office, &args.sign)?.confirming(&args.empty);
    let Compared { text, told, version, diff } = wait(compare(&api, &args.diff))?;
    if diff.is_empty() {
        let nothing = format!("nothing to change: version {version} says the same\n");
        output::text(&if api.json { format!("{}\n", told.body) } else { nothing })?;
        return Ok(Outcome::Well);
    }
    wait(api.check_editable())?;
    confirm::show(&diff.rendered(), api.json)?;
    confirm::ask("Apply?", &args.confirm)?;
    let seen = HeaderValue::try_from(format!("\"{version}\"")).ok();
    let told = wait(api.change(Method::PUT, "/v1/document", text, seen))?;
    done(&api, &told, "applied")
}

/// Says which version a change has made.
///
/// # Errors
/// When the answer is none.
pub(super) fn done(api: &Api, told: &Told, what: &str) -> Result<Outcome, Failure> {
    #[derive(Deserialize)]
    struct Made {
        version: u64,
        /// Of what was set.
        id: Option<String>,
        #[serde(default)]
        ids: Vec<String>,
    }
    let Made { version, id, ids } = told.read()?;
    let which: String =
        id.iter().chain(&ids).map(|id| format!(" {}", output::printable(id))).collect();
    let text = format!("{GOOD}{what}{GOOD:#}{which}: version {version} is in force\n");
    output::text(&if api.json { format!("{}\n", told.body) } else { text })?;
    Ok(Outcome::Well)
}

async fn compare(api: &Api, args: &RulesDiffArgs) -> Result<Compared, Failure> {
    let (name, bytes) = (args.file.display().to_string(), read_document(&args.file)?);
    let text = utf8(&name, &bytes)?.to_owned();
    let told = api.change(Method::POST, "/v1/validate", text.clone(), None).await?;
    match told.read()? {
        Validated::Valid { version, changes } => {
            let diff = Diff::of(changes, &pages::rules(api).await?);
            Ok(Compared { text, told, version, diff })
        }
        Validated::Invalid { .. } if api.json => {
            output::text(&format!("{}\n", told.body))?;
            Err(Failure::No(format!("{name} is not valid")))
        }
        Validated::Invalid { errors } => {
            let told: Vec<String> = errors.iter().map(Flaw::told).collect();
            Err(Failure::No(format!("{name} is not valid:\n  {}", told.join("\n  "))))
        }
    }
}
