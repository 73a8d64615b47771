//! API keys that are read from a file or stdin, so that they are in no shell's history.

use std::io::{self, Read as _};
use std::path::Path;

use serde_json::{Map, Value as Json};

use crate::cli::ApiKeyArgs;
use crate::failure::Failure;

/// The longest API key that a request may bring.
const MAX_KEY_BYTES: u64 = 8 << 10;

impl ApiKeyArgs {
    /// The key, if a file is named.
    ///
    /// # Errors
    /// When it cannot be read, or there is no key in it.
    pub(super) fn read(&self) -> Result<Option<String>, Failure> {
        let Some(path) = self.api_key_file.as_deref() else { return Ok(None) };
        let name = path.display();
        let text = text(path).map_err(|error| {
            Failure::CouldNot(format!("cannot read {name} for --api-key-file: {error}"))
        })?;
        match text.trim() {
            "" => Err(Failure::CouldNot(format!("{name} for --api-key-file holds no key"))),
            key => Ok(Some(key.to_owned())),
        }
    }

    /// Facts as they were typed, and the key among them.
    ///
    /// # Errors
    /// When the key cannot be read, or a fact is there twice.
    pub(super) fn among(&self, typed: &[(String, String)]) -> Result<Map<String, Json>, Failure> {
        let key = self.read()?.map(|key| ("api_key".to_owned(), key));
        let mut facts = Map::new();
        for (name, value) in typed.iter().cloned().chain(key) {
            if facts.insert(name.clone(), value.into()).is_some() {
                return Err(Failure::Usage(format!("`{name}` is there twice")));
            }
        }
        Ok(facts)
    }
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        io::stdin().lock().take(MAX_KEY_BYTES).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(path)?.take(MAX_KEY_BYTES).read_to_string(&mut text)?;
    }
    Ok(text)
}
