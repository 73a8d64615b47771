//! Reads API keys from a file or stdin, so that they do not appear in the shell's history.

use std::io::{self, Read as _};
use std::path::Path;

use serde_json::{Map, Value as Json};

use crate::cli::ApiKeyArgs;
use tidegate_server::error::CommandError;

/// Maximum length of an API key in a request.
const MAX_KEY_BYTES: u64 = 8 << 10;

impl ApiKeyArgs {
    /// Reads the key; `None` if no file is named.
    ///
    /// # Errors
    /// If the file cannot be read or contains no key.
    pub(super) fn read_key(&self) -> Result<Option<String>, CommandError> {
        let Some(path) = self.api_key_file.as_deref() else { return Ok(None) };
        let name = path.display();
        let text = read_text(path).map_err(|error| {
            CommandError::Failed(format!("cannot read {name} for --api-key-file: {error}"))
        })?;
        match text.trim() {
            "" => Err(CommandError::Failed(format!("{name} for --api-key-file contains no key"))),
            key => Ok(Some(key.to_owned())),
        }
    }

    /// Combines the facts of the command line with the key.
    ///
    /// # Errors
    /// If the key cannot be read, or a fact is given twice.
    pub(super) fn merge_with_facts(
        &self,
        typed: &[(String, String)],
    ) -> Result<Map<String, Json>, CommandError> {
        let key = self.read_key()?.map(|key| ("api_key".to_owned(), key));
        let mut facts = Map::new();
        for (name, value) in typed.iter().cloned().chain(key) {
            if facts.insert(name.clone(), value.into()).is_some() {
                return Err(CommandError::Usage(format!("`{name}` is given twice")));
            }
        }
        Ok(facts)
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        io::stdin().lock().take(MAX_KEY_BYTES).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(path)?.take(MAX_KEY_BYTES).read_to_string(&mut text)?;
    }
    Ok(text)
}
