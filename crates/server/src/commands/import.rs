//! `tidegate import`: another limiter's configuration as a rules document on stdout, and on stderr what has no
//! equivalent. What the formats mean is the rules' business; this reads files and prints.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tidegate_rules::import::{self, Foreign, Imported};
use tidegate_rules::problem::Problems;

use crate::Outcome;
use crate::cli::{ImportEnvoyArgs, ImportLimitadorArgs};
use crate::failure::Failure;
use crate::output;
use crate::source::{read_document, utf8};

/// A file that was read.
struct Read {
    name: String,
    bytes: Vec<u8>,
}

/// Imports the files of envoyproxy/ratelimit.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn envoy(args: &ImportEnvoyArgs) -> Result<Outcome, Failure> {
    let mut paths = Vec::new();
    for path in &args.paths {
        paths.append(&mut files(path)?);
    }
    let files: Vec<Read> = paths.iter().map(|path| Read::of(path)).collect::<Result<_, _>>()?;
    let texts: Result<Vec<Foreign<'_>>, Failure> = files.iter().map(Read::foreign).collect();
    answer(import::envoy_ratelimit(&texts?))
}

/// Imports the limits file of Limitador.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn limitador(args: &ImportLimitadorArgs) -> Result<Outcome, Failure> {
    let file = Read::of(&args.file)?;
    let imported = import::limitador(&file.foreign()?);
    answer(imported.map_err(|problems| vec![problems]))
}

impl Read {
    fn of(path: &Path) -> Result<Self, Failure> {
        Ok(Self { name: path.display().to_string(), bytes: read_document(path)? })
    }

    fn foreign(&self) -> Result<Foreign<'_>, Failure> {
        Ok(Foreign { file: &self.name, text: utf8(&self.name, &self.bytes)? })
    }
}

/// The files that a path stands for: itself, or those of a folder by name. What begins with a dot is how
/// Kubernetes swaps a folder's contents, not a file of it.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let cannot =
        |error: io::Error| Failure::CouldNot(format!("cannot read {}: {error}", path.display()));
    let entries = fs::read_dir(path).map_err(cannot)?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(cannot)?;
    files.retain(|file| is_configuration(file));
    files.sort();
    if files.is_empty() {
        let found =
            format!("{} has no .yaml or .yml file; name the folder that has", path.display());
        return Err(Failure::CouldNot(found));
    }
    Ok(files)
}

fn is_configuration(file: &Path) -> bool {
    let hidden = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let yaml = file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    yaml && !hidden && file.is_file()
}

/// Prints what came of it.
fn answer(imported: Result<Imported, Vec<Problems>>) -> Result<Outcome, Failure> {
    let Imported { document, gaps } = match imported {
        Ok(imported) => imported,
        Err(wrong) => {
            wrong.into_iter().for_each(|problems| Failure::Invalid(problems).print());
            return Ok(Outcome::No);
        }
    };
    output::text(&document)?;
    let listed: String = gaps.iter().map(|gap| format!("{gap}\n")).collect();
    // There is nobody left to tell when stderr is gone.
    let _ = anstream::stderr().write_all(listed.as_bytes());
    Ok(gaps.is_empty().into())
}
