//! API keys that are read from a file or stdin, so that they are in no shell's history.

use std::io::{self, Read as _};
use std::path::Path;

use serde_json::{Map, Value as Json};

use crate::cli::ApiKeyArgs;
use tidegate_server::error::CommandError;

/// The longest API key that a request may bring.
const MAX_KEY_BYTES: u64 = 8 << 10;

impl ApiKeyArgs {
    /// The key, if a file is named.
    ///
    /// # Errors
    /// When it cannot be read, or there is no key in it.
    pub(super) fn read_key(&self) -> Result<Option<String>, CommandError> {
        let Some(path) = self.api_key_file.as_deref() else { return Ok(None) };
        let name = path.display();
        let text = read_text(path).map_err(|error| {
            CommandError::Failed(format!("cannot read {name} for --api-key-file: {error}"))
        })?;
        match text.trim() {
            "" => Err(CommandError::Failed(format!("{name} for --api-key-file holds no key"))),
            key => Ok(Some(key.to_owned())),
        }
    }

    /// Facts as they were typed, and the key among them.
    ///
    /// # Errors
    /// When the key cannot be read, or a fact is there twice.
    pub(super) fn merge_with_facts(
        &self,
        typed: &[(String, String)],
    ) -> Result<Map<String, Json>, CommandError> {
        let key = self.read_key()?.map(|key| ("api_key".to_owned(), key));
        let mut facts = Map::new();
        for (name, value) in typed.iter().cloned().chain(key) {
            if facts.insert(name.clone(), value.into()).is_some() {
                return Err(CommandError::Usage(format!("`{name}` is there twice")));
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
