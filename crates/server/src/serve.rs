//! `tidegate serve`: opens the doors, keeps house beside them, and closes up in order.

mod doors;
mod greeting;
mod stop;

use std::sync::Arc;

use tidegate_edge::Status;
use tidegate_edge::http::{self, Door};
use tidegate_edge::respond::HeaderSettings;
use tidegate_engine::Limiter;
use tidegate_memory::{FastClock, MemoryStore};
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::cli::ServeArgs;
use crate::config::{Layer, Settings};
use crate::failure::Failure;
use crate::output;
use crate::reload::Reloader;
use crate::snapshot::SnapshotFile;
use crate::source::Source;
use crate::sweep;
use crate::telemetry::{self, Event};
use doors::OpenDoor;
use stop::Signals;

/// Everything that a running server is made of.
struct House {
    source: Source,
    settings: Settings,
    section: Layer,
    content: u64,
    limiter: Arc<Limiter<MemoryStore<FastClock>>>,
    status: Arc<Status>,
}

/// Runs the server until it is told to stop.
///
/// # Errors
/// When the settings or rules are wrong, or a door that was asked for cannot open.
pub(crate) fn run(args: ServeArgs) -> Result<Outcome, Failure> {
    let source = Source::new(&args.rules);
    let loaded = source.load()?;
    let settings = Settings::check(args.settings.over(loaded.section.clone()))?;
    let rules = loaded.compile(settings.secret)?;
    telemetry::start(settings.log, settings.log_level);
    let (count, version) = (rules.rules().len(), rules.version());
    Event::Started { source: &source.name(), rules: count, version }.tell();
    if count == 0 {
        Event::NoRules { source: &source.name() }.tell();
    }
    let store = MemoryStore::with_clock(FastClock::new(), settings.memory_limit.0);
    let house = House {
        source,
        settings,
        section: loaded.section,
        content: loaded.content,
        limiter: Arc::new(Limiter::new(store, rules)),
        status: Arc::new(Status::new()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::CouldNot(format!("cannot start the runtime: {error}")))?;
    let outcome = runtime.block_on(house.run());
    // Whatever still runs had its time.
    runtime.shutdown_background();
    outcome
}

impl House {
    async fn run(self) -> Result<Outcome, Failure> {
        // Before anyone is told that we listen, so that no signal from then on is missed.
        let mut signals = Signals::listen()?;
        let hang_up = stop::hang_up()?;
        let listener = doors::open(self.settings.http).await?;
        self.restore().await?;
        self.status.rules_in_force(self.limiter.rules().version());
        let mut keepers = self.keep_house(hang_up);
        let mut door = self.serve(listener)?;
        let signal = tokio::select! {
            signal = signals.next() => signal,
            ended = door.ended() => return Err(ended),
        };
        self.status.drain();
        Event::Draining { signal }.tell();
        let closing = async {
            door.close().await;
            keepers.shutdown().await;
            if let Some(file) = self.snapshot() {
                file.write_aside(&self.limiter).await;
            }
        };
        tokio::select! {
            () = closing => {
                Event::Stopped.tell();
                Ok(Outcome::Well)
            }
            signal = signals.next() => {
                Event::StoppedAtOnce { signal }.tell();
                Err(Failure::CouldNot("stopped before all requests were answered".to_owned()))
            }
        }
    }

    /// Puts back the counters of the last run.
    async fn restore(&self) -> Result<(), Failure> {
        let Some(file) = self.snapshot() else {
            return Ok(());
        };
        let limiter = Arc::clone(&self.limiter);
        let restored = tokio::task::spawn_blocking(move || file.restore(limiter.store())).await;
        restored.map_err(|error| Failure::CouldNot(format!("cannot restore counters: {error}")))
    }

    /// Serves requests from now on, and says so.
    fn serve(&self, listener: TcpListener) -> Result<OpenDoor, Failure> {
        let at = listener.local_addr()?;
        if !at.ip().is_loopback() && self.settings.token.is_none() {
            Event::OpenWithoutToken { at }.tell();
        }
        let settings = http::Settings {
            headers: HeaderSettings { reset: self.settings.reset_style },
            token: self.settings.token.clone(),
            drain_timeout: self.settings.drain_timeout,
            ..http::Settings::default()
        };
        let (limiter, status) = (Arc::clone(&self.limiter), Arc::clone(&self.status));
        let door = OpenDoor::serve(listener, Arc::new(Door::new(limiter, status, settings)));
        // Whoever started us may not listen to stdout; the doors are open all the same.
        let _ = output::text(&greeting::text(at, self.source.is_built_in()));
        Ok(door)
    }

    /// What goes on beside the doors.
    fn keep_house(&self, hang_up: Signal) -> JoinSet<()> {
        let mut keepers = JoinSet::new();
        keepers.spawn(sweep::run(Arc::clone(&self.limiter)));
        let reloader = Reloader {
            source: self.source.clone(),
            secret: self.settings.secret,
            limiter: Arc::clone(&self.limiter),
            status: Arc::clone(&self.status),
            seen: Some(self.content),
            section: self.section.clone(),
        };
        keepers.spawn(reloader.run(hang_up));
        if let Some(file) = self.snapshot() {
            let every = self.settings.snapshot_interval;
            keepers.spawn(file.keep(Arc::clone(&self.limiter), every));
        }
        keepers
    }

    fn snapshot(&self) -> Option<SnapshotFile> {
        let path = self.settings.snapshot.clone()?;
        Some(SnapshotFile::new(path, self.settings.secret))
    }
}
