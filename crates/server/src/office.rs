//! The rules of this process: what compiles them and where they come into force. Where they come
//! from is in `start`.

mod seed;
mod start;
mod table;

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use tidegate_control::{Compiles, Desk, Files, Identities, News, Office, Repository, Staff};
use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_core::time::{Clock as _, SystemClock, Timestamp};
use tidegate_edge::Status;
use tidegate_engine::Limiter;
use tidegate_rules::problem::{Problem, Problems};
use tidegate_rules::{Rule, RuleSet};
use tokio::sync::Notify;

use crate::changes::Changes;
use crate::config::Settings;
use crate::extraction::Extraction;
use crate::failure::Failure;
use crate::node;
use crate::source::Source;
use crate::telemetry::Event;

pub(crate) use start::{Origin, Start, entries_of, start, unversioned};
pub(crate) use table::{TableError, without_rules};

/// What wall clocks of the office are.
pub(crate) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The wall clock.
pub(crate) fn wall_clock() -> WallClock {
    let clock = SystemClock::new();
    Arc::new(move || clock.now())
}

/// Compiles documents of the office as those of the file are.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    pub(crate) source: Source,
    pub(crate) secret: Secret,
}

impl Compiles for Compiler {
    fn compile(&self, document: &str, files: Files) -> Result<RuleSet, Problems> {
        let loaded = self.source.alone().load_from(document.as_bytes(), files);
        loaded.and_then(|loaded| loaded.compile(self.secret)).map_err(|failure| match failure {
            Failure::Invalid(problems) | Failure::Limit(problems) => problems,
            Failure::No(text) | Failure::Usage(text) | Failure::CouldNot(text) => {
                let problem = Problem {
                    line: 0,
                    column: 0,
                    field: String::new(),
                    found: None,
                    message: text,
                    hint: None,
                    excerpt: None,
                };
                Problems { file: self.source.name(), list: vec![problem], omitted: 0 }
            }
        })
    }
}

/// Where rules of the office come into force.
struct Hall<S, L> {
    limiter: Arc<Limiter<S, L>>,
    status: Arc<Status>,
    repository: Arc<dyn Repository>,
    extraction: Extraction,
    /// Woken when a version came into force.
    in_force: Arc<Notify>,
}

impl<S: Store + 'static, L: Store + 'static> Desk for Hall<S, L> {
    fn install(&self, rules: RuleSet) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let (before, version) = (self.limiter.rules(), rules.version());
            let changes = Changes::between(&before, &rules);
            self.limiter.install(rules).await.map_err(|error| error.to_string())?;
            self.status.rules_in_force(version);
            self.extraction.report(&self.limiter.rules(), &self.status);
            Event::Reloaded { source: self.repository.name(), version, changes: &changes }.tell();
            if !self.limiter.rules().rules().iter().any(Rule::is_active) {
                Event::NoRules { source: self.repository.name() }.tell();
            }
            Ok(())
        }
        .boxed()
    }

    fn hear(&self, news: &News<'_>) {
        match news {
            News::InForce { .. } => self.in_force.notify_one(),
            News::Faulty { version, why } => {
                self.status.reload_failed(format!(
                    "version {version} of the rules cannot come into force; the log has the reason"
                ));
                Event::VersionRefused { version: *version, why }.tell();
            }
            News::Lost { why } => {
                self.status
                    .rules_unknown("the rules database does not answer; the log has the reason");
                Event::DatabaseLost { why }.tell();
            }
            News::Back => {
                self.status.rules_in_force(self.limiter.rules().version());
                Event::DatabaseBack.tell();
            }
            News::NodeJoined { name } => Event::NodeJoined { node: name }.tell(),
            News::NodeLeft { name, silent } => {
                let how = if *silent { "it stopped reporting" } else { "it was stopped" };
                Event::NodeLeft { node: name, how }.tell();
            }
            News::CopyFailed { why } => Event::CopyFailed { why }.tell(),
        }
    }
}

/// Opens the office over a limiter that has the rules of the start in force.
pub(crate) fn open<S: Store + 'static, L: Store + 'static>(
    start: Start,
    source: &Source,
    settings: &Settings,
    limiter: &Arc<Limiter<S, L>>,
    status: &Arc<Status>,
    clock: WallClock,
) -> (Office, Origin, Arc<Notify>) {
    let Start { book, repository, origin, copy } = start;
    let in_force = Arc::new(Notify::new());
    let hall = Hall {
        limiter: Arc::clone(limiter),
        status: Arc::clone(status),
        repository: Arc::clone(&repository),
        extraction: Extraction::of(settings),
        in_force: Arc::clone(&in_force),
    };
    let staff = Staff {
        repository,
        compiler: Arc::new(Compiler { source: source.clone(), secret: settings.secret }),
        desk: Arc::new(hall),
        clock,
        secret: settings.secret,
        identities: identities(settings),
        node: node::name(),
        copy,
    };
    (Office::new(staff, book), origin, in_force)
}

/// How users and addresses of violations are kept.
pub(crate) const fn identities(settings: &Settings) -> Identities {
    Identities { secret: settings.secret, plain: settings.admin.plain_identities }
}
