//! The limits file of Limitador as a rules document.
//!
//! A limit names a namespace (the domain of a call), conditions that must all hold, and variables that tell counters
//! apart; conditions and variables are CEL, of which the forms that people use are understood. A limit with any
//! other is left out and listed: without it the rule would mean something else.

mod cel;
mod constraints;
mod read;
mod translate;

use super::document_writer::DocumentWriter;
use super::unsupported::UnsupportedCollector;
use super::{ForeignFile, ImportResult};
use crate::decode::Diagnostics;
use crate::diagnostic::DocumentError;

/// A limits file as a rules document.
///
/// # Errors
/// Everything that is wrong with the file, at once.
pub fn import(file: &ForeignFile<'_>) -> Result<ImportResult, DocumentError> {
    let diagnostics = Diagnostics::new(file.file, file.text);
    let mut gaps = UnsupportedCollector::new(file.file);
    let limits = read::read_limits(file.text, &diagnostics, &mut gaps);
    diagnostics.finish()?;
    let mut writer = DocumentWriter::new("");
    translate::translate_limits(&limits, &mut writer, &mut gaps);
    if writer.skipped > 0 {
        gaps.note_truncated(writer.skipped);
    }
    gaps.list.sort_by_key(|gap| gap.line);
    Ok(ImportResult { document: writer.finish(), unsupported: gaps.list })
}
