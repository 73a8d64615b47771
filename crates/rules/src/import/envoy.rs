//! Imports the configuration of Envoy's reference rate limit service (envoyproxy/ratelimit).
//!
//! All files of a server form one configuration: a domain may be spread over several files. The
//! service's README and `src/config/config_impl.go` define the meaning of the fields.

mod assigned_ids;
mod domain;
mod key_collisions;
mod read;
mod translate;
mod walk;

use super::{ForeignFile, ImportResult, UnsupportedFeature};
use crate::decode::Diagnostics;
use crate::diagnostic::DocumentError;
use domain::EnvoyDomain;
use read::EnvoyFile;

/// The service decides and charges each descriptor of a call independently, with one counter per
/// combination of entry values.
const DOCUMENT_HEADER: &str = "server:\n  grpc_charge: independent\nkey_by: descriptor\n";

/// Converts the files of a server into one rules document.
///
/// # Errors
/// All errors of all files.
pub fn import(files: &[ForeignFile<'_>]) -> Result<ImportResult, Vec<DocumentError>> {
    let diagnostics: Vec<Diagnostics<'_>> =
        files.iter().map(|file| Diagnostics::new(file.file, file.text)).collect();
    let mut files: Vec<EnvoyFile<'_>> = files
        .iter()
        .zip(&diagnostics)
        .map(|(file, diagnostics)| EnvoyFile::read(file, diagnostics))
        .collect();
    let domains = EnvoyDomain::collect_domains(&files, &diagnostics);
    let errors: Vec<DocumentError> =
        diagnostics.into_iter().filter_map(|f| f.finish().err()).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let writer = translate::translate_domains(&domains, DOCUMENT_HEADER);
    let mut gaps: Vec<UnsupportedFeature> =
        domains.iter().flat_map(key_collisions::find_collisions).collect();
    if let Some(last) = files.last_mut().filter(|_| writer.skipped > 0) {
        last.unsupported.note_truncated(writer.skipped);
    }
    files.iter_mut().for_each(|file| gaps.append(&mut file.unsupported.list));
    sort_by_location(&mut gaps, &files);
    Ok(ImportResult { document: writer.finish(), unsupported: gaps })
}

fn sort_by_location(gaps: &mut [UnsupportedFeature], files: &[EnvoyFile<'_>]) {
    let file_index = |gap: &UnsupportedFeature| files.iter().position(|file| file.name == gap.file);
    gaps.sort_by_cached_key(|gap| (file_index(gap), gap.line));
}
