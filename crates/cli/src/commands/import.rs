//! `tidegate import`: converts another limiter's configuration to a rules document on stdout, and
//! lists what has no equivalent on stderr. This file only reads files and prints; the conversion is
//! in [`tidegate_rules::import`].

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tidegate_rules::diagnostic::DocumentError;
use tidegate_rules::import::{self, ForeignFile, ImportResult};

use crate::cli::{ImportEnvoyArgs, ImportLimitadorArgs};
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output;
use tidegate_server::rule_source::{parse_utf8, read_document};

/// The name and content of a file.
struct ImportFile {
    name: String,
    bytes: Vec<u8>,
}

/// Imports the files of envoyproxy/ratelimit.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn envoy(args: &ImportEnvoyArgs) -> Result<CommandOutcome, CommandError> {
    let mut paths = Vec::new();
    for path in &args.paths {
        paths.append(&mut list_files(path)?);
    }
    let files: Vec<ImportFile> =
        paths.iter().map(|path| ImportFile::read(path)).collect::<Result<_, _>>()?;
    let texts: Result<Vec<ForeignFile<'_>>, CommandError> =
        files.iter().map(ImportFile::as_import_source).collect();
    print_import(import::envoy_ratelimit(&texts?))
}

/// Imports the limits file of Limitador.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn limitador(args: &ImportLimitadorArgs) -> Result<CommandOutcome, CommandError> {
    let file = ImportFile::read(&args.file)?;
    let imported = import::limitador(&file.as_import_source()?);
    print_import(imported.map_err(|problems| vec![problems]))
}

impl ImportFile {
    fn read(path: &Path) -> Result<Self, CommandError> {
        Ok(Self { name: path.display().to_string(), bytes: read_document(path)? })
    }

    fn as_import_source(&self) -> Result<ForeignFile<'_>, CommandError> {
        Ok(ForeignFile { file: &self.name, text: parse_utf8(&self.name, &self.bytes)? })
    }
}

/// Lists the files of a path: the file itself, or the YAML files of a folder, sorted by name. Skips
/// names that begin with a dot: Kubernetes uses them to swap the contents of a mounted folder.
fn list_files(path: &Path) -> Result<Vec<PathBuf>, CommandError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let cannot =
        |error: io::Error| CommandError::Failed(format!("cannot read {}: {error}", path.display()));
    let entries = fs::read_dir(path).map_err(cannot)?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(cannot)?;
    files.retain(|file| is_configuration(file));
    files.sort();
    if files.is_empty() {
        let message =
            format!("{} has no .yaml or .yml files; name a folder that has some", path.display());
        return Err(CommandError::Failed(message));
    }
    Ok(files)
}

fn is_configuration(file: &Path) -> bool {
    let hidden = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let yaml = file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    yaml && !hidden && file.is_file()
}

/// Prints the document and the list of unsupported settings, or the errors.
fn print_import(
    imported: Result<ImportResult, Vec<DocumentError>>,
) -> Result<CommandOutcome, CommandError> {
    let ImportResult { document, unsupported } = match imported {
        Ok(imported) => imported,
        Err(errors) => {
            errors.into_iter().for_each(|error| CommandError::InvalidDocument(error).print());
            return Ok(CommandOutcome::Rejected);
        }
    };
    output::print_text(&document)?;
    let listed: String = unsupported.iter().map(|setting| format!("{setting}\n")).collect();
    // If stderr is closed, there is no other place to report it.
    let _ = anstream::stderr().write_all(listed.as_bytes());
    Ok(unsupported.is_empty().into())
}
