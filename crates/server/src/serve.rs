//! `tidegate serve`: opens the doors, keeps house beside them, and closes up in order.

mod doors;
mod greeting;
mod stop;

use std::sync::Arc;

use tidegate_edge::Status;
use tidegate_edge::http::{self, Door};
use tidegate_engine::Limiter;
use tidegate_memory::FastClock;
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::cli::ServeArgs;
use crate::config::{Layer, Settings, StoreSettings};
use crate::failure::Failure;
use crate::output;
use crate::reload::Reloader;
use crate::source::{Loaded, Source};
use crate::store::{self, Embedded, Shared, Tended};
use crate::telemetry::{self, Event};
use doors::OpenDoor;
use stop::Signals;

/// Everything that a running server is made of.
struct House<S: Tended> {
    source: Source,
    settings: Settings,
    section: Layer,
    content: u64,
    limiter: Arc<Limiter<S, S::Local>>,
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
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::CouldNot(format!("cannot start the runtime: {error}")))?;
    let outcome = runtime.block_on(async {
        let embedded = Embedded::with_clock(FastClock::new(), settings.memory_limit.0);
        match &settings.store {
            StoreSettings::Memory => {
                let limiter = Limiter::new(embedded, rules);
                House::new(source, settings, loaded, limiter).run().await
            }
            StoreSettings::Redis(redis) => {
                let shared = Shared::start(&store::options(redis));
                let limiter = Limiter::new(shared, rules).with_local(embedded);
                House::new(source, settings, loaded, limiter).run().await
            }
        }
    });
    // Whatever still runs had its time.
    runtime.shutdown_background();
    outcome
}

impl<S: Tended> House<S> {
    fn new(
        source: Source,
        settings: Settings,
        loaded: Loaded,
        limiter: Limiter<S, S::Local>,
    ) -> Self {
        let (limiter, status) = (Arc::new(limiter), Arc::new(Status::new()));
        let Loaded { section, content, .. } = loaded;
        Self { source, settings, section, content, limiter, status }
    }

    async fn run(self) -> Result<Outcome, Failure> {
        // Before anyone is told that we listen, so that no signal from then on is missed.
        let mut signals = Signals::listen()?;
        let hang_up = stop::hang_up()?;
        let listener = doors::open(self.settings.http).await?;
        S::prepare(&self.limiter, &self.settings).await;
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
            S::close(&self.limiter, &self.settings).await;
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

    /// Serves requests from now on, and says so.
    fn serve(&self, listener: TcpListener) -> Result<OpenDoor, Failure> {
        let at = listener.local_addr()?;
        if !at.ip().is_loopback() && self.settings.token.is_none() {
            Event::OpenWithoutToken { at }.tell();
        }
        let settings = http::Settings {
            headers: self.settings.headers,
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
        S::keep(&self.limiter, &self.settings, &self.status, &mut keepers);
        let reloader = Reloader {
            source: self.source.clone(),
            secret: self.settings.secret,
            limiter: Arc::clone(&self.limiter),
            status: Arc::clone(&self.status),
            seen: Some(self.content),
            section: self.section.clone(),
        };
        keepers.spawn(reloader.run(hang_up));
        keepers
    }
}
