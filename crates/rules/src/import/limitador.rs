//! The limits file of Limitador as a rules document.
//!
//! A limit names a namespace (the domain of a call), conditions that must all hold, and variables that tell counters
//! apart; conditions and variables are CEL, of which the forms that people use are understood. A limit with any
//! other is left out and listed: without it the rule would mean something else.

mod asked;
mod cel;
mod read;
mod translate;

use super::gaps::Gaps;
use super::write::Writer;
use super::{Foreign, Imported};
use crate::decode::Findings;
use crate::problem::Problems;

/// A limits file as a rules document.
///
/// # Errors
/// Everything that is wrong with the file, at once.
pub fn import(file: &Foreign<'_>) -> Result<Imported, Problems> {
    let findings = Findings::new(file.file, file.text);
    let mut gaps = Gaps::new(file.file);
    let limits = read::limits(file.text, &findings, &mut gaps);
    findings.finish()?;
    let mut writer = Writer::new("");
    translate::all(&limits, &mut writer, &mut gaps);
    if writer.left_out > 0 {
        gaps.too_long(writer.left_out);
    }
    gaps.list.sort_by_key(|gap| gap.line);
    Ok(Imported { document: writer.finish(), gaps: gaps.list })
}
