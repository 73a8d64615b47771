//! Whether the file still says what it seeded the database with. Its rules are not in force any more:
//! the person who edits it must see that.

use tidegate_control::{Book, Entry, Office, Refused};
use tidegate_core::key::Secret;
use tidegate_edge::Status;

use crate::failure::Failure;
use crate::source::{Loaded, Source};
use crate::telemetry::Event;

/// Who signs the version that a file seeds.
pub(super) const AUTHOR: &str = "tidegate";

/// The version that a file seeds.
const SEEDED: u64 = 1;

const DIFFERS: &str = "the rules file differs from what it seeded the rules database with, and its \
    rules are not in force; to put them into force: tidegate rules apply FILE";

/// Compares the file with what it seeded and with what is in force.
#[derive(Debug)]
pub(crate) struct SeedCheck {
    name: String,
    /// What the file says, or what is wrong with it; nothing where there is no file.
    file: Option<Result<Vec<Entry>, Failure>>,
    /// What a file once seeded; unknown until the database is asked.
    seed: Option<Book>,
    /// What was said last.
    warned: Option<String>,
}

impl SeedCheck {
    pub(super) fn new(source: &Source, loaded: &Loaded, secret: Secret) -> Self {
        let file = (!source.is_built_in())
            .then(|| loaded.compile(secret).and_then(|rules| loaded.entries(&rules, secret)));
        Self { name: source.name(), file, seed: None, warned: None }
    }

    /// The file was read again.
    pub(crate) fn replace(&mut self, file: Result<Vec<Entry>, &Failure>) {
        self.file = Some(file.map_err(Failure::clone));
        // That it still differs is worth another line.
        self.warned = None;
    }

    /// Says in the log and in `/readyz` whether the file differs.
    pub(crate) async fn check(&mut self, office: &Office, status: &Status) {
        // The sync loop reports a database that does not answer.
        let Ok(warning) = self.warning(office).await else { return };
        status.warn_of_rules(warning.clone());
        if let (Some(warning), true) = (&warning, self.warned != warning) {
            let invalid = self.file.as_ref().and_then(|file| file.as_ref().err());
            let why = invalid.map_or_else(|| warning.clone(), ToString::to_string);
            let database = office.repository().name();
            Event::FileDiffers { source: &self.name, database, why: why.trim_end() }.tell();
        }
        self.warned = warning;
    }

    /// What `/readyz` says: no more than that the file is not as it should be, and where.
    async fn warning(&mut self, office: &Office) -> Result<Option<String>, Refused> {
        let entries = match &self.file {
            None => return Ok(None),
            Some(Err(failure)) => {
                return Ok(Some(format!("the rules file is not used: {}", failure.in_public())));
            }
            Some(Ok(entries)) => entries.clone(),
        };
        if entries.is_empty() || office.book().says(&entries) {
            return Ok(None);
        }
        let differs = !self.seed(office).await?.is_some_and(|seed| seed.says(&entries));
        Ok(differs.then(|| DIFFERS.to_owned()))
    }

    /// The book that a file seeded, if one did.
    async fn seed(&mut self, office: &Office) -> Result<Option<&Book>, Refused> {
        if self.seed.is_none() {
            let signed = office.repository().history(SEEDED + 1, 1).await?;
            if signed.first().is_some_and(|first| first.author == AUTHOR) {
                let mut seed = Book::default();
                seed.follow(office.repository().changes(0, SEEDED).await?);
                self.seed = Some(seed);
            }
        }
        Ok(self.seed.as_ref())
    }
}
