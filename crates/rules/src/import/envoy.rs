//! The configuration of Envoy's reference rate limit service (envoyproxy/ratelimit) as a rules document.
//!
//! The files of a server are one configuration: a domain may be spread over several. What its fields mean is in the
//! service's README and in `src/config/config_impl.go`.

mod domain;
mod joined;
mod names;
mod read;
mod translate;
mod walk;

use super::{Foreign, Gap, Imported};
use crate::decode::Findings;
use crate::problem::Problems;
use domain::Domain;
use read::File;

/// Each descriptor of a call is decided and charged by itself, and so is every counter named.
const HEAD: &str = "server:\n  grpc_charge: independent\nkey_by: descriptor\n";

/// The files of a server as one rules document.
///
/// # Errors
/// Everything that is wrong with the files, at once.
pub fn import(files: &[Foreign<'_>]) -> Result<Imported, Vec<Problems>> {
    let findings: Vec<Findings<'_>> =
        files.iter().map(|file| Findings::new(file.file, file.text)).collect();
    let mut files: Vec<File<'_>> =
        files.iter().zip(&findings).map(|(file, findings)| File::read(file, findings)).collect();
    let domains = Domain::gather(&files, &findings);
    let wrong: Vec<Problems> = findings.into_iter().filter_map(|f| f.finish().err()).collect();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let writer = translate::all(&domains, HEAD);
    let mut gaps: Vec<Gap> = domains.iter().flat_map(joined::gaps).collect();
    if let Some(last) = files.last_mut().filter(|_| writer.left_out > 0) {
        last.gaps.too_long(writer.left_out);
    }
    files.iter_mut().for_each(|file| gaps.append(&mut file.gaps.list));
    in_order(&mut gaps, &files);
    Ok(Imported { document: writer.finish(), gaps })
}

fn in_order(gaps: &mut [Gap], files: &[File<'_>]) {
    let place = |gap: &Gap| files.iter().position(|file| file.name == gap.file);
    gaps.sort_by_cached_key(|gap| (place(gap), gap.line));
}
