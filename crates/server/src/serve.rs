//! `tidegate serve`: opens the doors, keeps house beside them, and closes up in order.

mod answering;
mod bursts;
mod certificate;
mod descriptors;
mod doors;
mod greeting;
mod handover;
mod inherited;
mod notify;
mod opening;
mod reach;
mod socket_file;
mod stop;
mod telling;

use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_control::{Metrics, Office, Top, ViolationLog};
use tidegate_core::key::Secret;
use tidegate_edge::Status;
use tidegate_edge::trace::Tracer;
use tidegate_engine::{Limiter, Observer, Stopwatch};
use tidegate_memory::FastClock;
use tidegate_rules::Rule;
use tokio::signal::unix::Signal;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::cli::ServeArgs;
use crate::config::{Layer, Settings, StoreSettings};
use crate::extraction::Extraction;
use crate::failure::Failure;
use crate::office::{self, Origin, Start, WallClock};
use crate::reload::Reloader;
use crate::source::{Loaded, Source};
use crate::store::{self, Embedded, Shared, Tended};
use crate::telemetry::{self, Event};
use doors::{Doors, Kind};
pub(crate) use greeting::{Addresses, Asker};
use handover::Estate;
use inherited::Inherited;
use opening::Opened;
use socket_file::SocketFile;
use stop::{Signals, Told};

/// With more rules than this, the lines that list them are for debugging.
const MANY_RULES: usize = 50;

/// Everything that a running server is made of.
struct House<S: Tended> {
    source: Source,
    settings: Settings,
    section: Layer,
    key_file: Option<PathBuf>,
    content: u64,
    limiter: Arc<Limiter<S, S::Local>>,
    status: Arc<Status>,
    office: Arc<Office>,
    /// What the rules follow, until the reloader takes it.
    origin: Mutex<Option<Origin>>,
    /// Woken when a version came into force.
    in_force: Arc<Notify>,
    log: Arc<ViolationLog>,
    metrics: Arc<Metrics>,
    top: Arc<Top>,
    tracer: Option<Tracer>,
}

/// Runs the server until it is told to stop. Where its doors are is told on stdout, or to whoever asks in this
/// process.
///
/// # Errors
/// When the settings or rules are wrong, or a door that was asked for cannot open.
pub(crate) fn run(args: ServeArgs, asker: Option<Asker>) -> Result<Outcome, Failure> {
    let inherited = Inherited::take()?;
    let source = Source::new(&args.rules);
    let loaded = source.load()?;
    let settings = Settings::check(args.settings.over(loaded.section.clone()))?;
    telemetry::start(settings.log, settings.log_level);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::CouldNot(format!("cannot start the runtime: {error}")))?;
    let outcome = runtime.block_on(begin(source, loaded, settings, inherited, asker));
    // Whatever still runs had its time.
    runtime.shutdown_background();
    outcome
}

/// Finds the rules, and runs on the store that is asked for.
async fn begin(
    source: Source,
    loaded: Loaded,
    settings: Settings,
    inherited: Inherited,
    asker: Option<Asker>,
) -> Result<Outcome, Failure> {
    let clock = office::wall_clock();
    let (rules, start) = office::start(&source, &loaded, &settings, &clock).await?;
    let (count, version) = (rules.rules().len(), rules.version());
    let name = start.repository.name().to_owned();
    Event::Started { source: &name, rules: count, version }.tell();
    for rule in rules.rules() {
        Event::RuleInForce { rule, many: count > MANY_RULES }.tell();
    }
    if !rules.rules().iter().any(Rule::is_active) {
        Event::NoRules { source: &name }.tell();
    }
    if settings.secret == Secret::UNSET {
        Event::SecretUnset.tell();
    }
    Extraction::of(&settings).check(&rules, &source)?;
    let embedded = Embedded::with_clock(FastClock::new(), settings.memory_limit.0);
    match &settings.store {
        StoreSettings::Memory => {
            let limiter = Limiter::new(embedded, rules);
            House::new(source, settings, loaded, limiter, start, clock).run(inherited, asker).await
        }
        StoreSettings::Redis(redis) => {
            let shared = Shared::start(&store::options(redis));
            let limiter = Limiter::new(shared, rules).with_local(embedded);
            House::new(source, settings, loaded, limiter, start, clock).run(inherited, asker).await
        }
    }
}

impl<S: Tended> House<S> {
    fn new(
        source: Source,
        settings: Settings,
        loaded: Loaded,
        limiter: Limiter<S, S::Local>,
        start: Start,
        clock: WallClock,
    ) -> Self {
        let log = Arc::new(telling::log(&settings, Arc::clone(&clock)));
        let metrics = Arc::new(telling::metrics::<S>());
        let top = Arc::new(Top::new(office::identities(&settings), Arc::clone(&clock)));
        let limiter = limiter
            .observed_by(Arc::clone(&log) as Arc<dyn Observer>)
            .observed_by(Arc::clone(&metrics) as Arc<dyn Observer>)
            .observed_by(Arc::clone(&top) as Arc<dyn Observer>)
            .timed_by(Arc::clone(&metrics) as Arc<dyn Stopwatch>);
        let (tracer, limiter) = telling::traced(&settings, limiter);
        let limiter = Arc::new(limiter);
        let status = Arc::new(Status::new());
        let opened = office::open(start, &source, &settings, &limiter, &status, clock);
        let (office, origin, in_force) = opened;
        let (office, origin) = (Arc::new(office), Mutex::new(Some(origin)));
        let Loaded { section, key_file, content, .. } = loaded;
        Self {
            source,
            settings,
            section,
            key_file,
            content,
            limiter,
            status,
            office,
            origin,
            in_force,
            log,
            metrics,
            top,
            tracer,
        }
    }

    async fn run(self, inherited: Inherited, asker: Option<Asker>) -> Result<Outcome, Failure> {
        // Before anyone is told that we listen, so that no signal from then on is missed.
        let mut signals = Signals::listen()?;
        stop::enforce()?;
        let hang_up = stop::hang_up()?;
        let mut opened = self.open(inherited).await?;
        let mut estate = Estate::new()?;
        for door in &opened {
            estate.add(door)?;
        }
        let mut files: Vec<_> = opened.iter_mut().filter_map(|door| door.file.take()).collect();
        S::prepare(&self.limiter, &self.settings).await;
        self.status.rules_in_force(self.limiter.rules().version());
        let mut keepers = self.keep_house(hang_up);
        let writers = self.keep_books();
        let mut doors = self.serve(opened, &mut keepers, asker)?;
        notify::tell(notify::State::Ready);
        if let Some(predecessor) = handover::relieve() {
            Event::Relieved { predecessor: predecessor.as_raw_nonzero().get() }.tell();
        }
        files.iter_mut().for_each(SocketFile::take_over);
        let (signal, successor) = self.until_stopped(&mut signals, &mut doors, &estate).await?;
        if successor.is_some() {
            files.iter_mut().for_each(SocketFile::leave);
        }
        // While the sockets are open: no file can have the number of one of theirs until then.
        drop(files);
        // Copies of the sockets would keep the doors open for connections that nobody accepts.
        drop(estate);
        self.status.drain();
        Event::Draining { signal }.tell();
        let closing = async {
            if successor.is_none() {
                notify::tell(notify::State::Stopping);
                doors.close().await;
                keepers.shutdown().await;
                let kept = S::close(&self.limiter, &self.settings).await;
                self.close_books(writers).await;
                kept
            } else {
                // The counters are the successor's business by now.
                keepers.shutdown().await;
                doors.close().await;
                self.close_books(writers).await;
                Ok(())
            }
        };
        tokio::select! {
            closed = closing => {
                closed?;
                Event::Stopped.tell();
                Ok(Outcome::Well)
            }
            signal = signals.stop() => {
                Event::StoppedAtOnce { signal }.tell();
                Err(Failure::CouldNot("stopped before all requests were answered".to_owned()))
            }
        }
    }

    /// Waits for the signal to stop, and says whether a successor serves from then on.
    async fn until_stopped(
        &self,
        signals: &mut Signals,
        doors: &mut Doors,
        estate: &Estate,
    ) -> Result<(&'static str, Option<Child>), Failure> {
        let mut successor: Option<Child> = None;
        loop {
            let told = tokio::select! {
                told = signals.next() => told,
                ended = doors.ended() => return Err(ended),
            };
            // One that has ended again was none.
            successor = successor.and_then(handover::alive);
            match told {
                Told::Stop(signal) => return Ok((signal, successor)),
                Told::HandOver if successor.is_some() => Event::HandOverAgain.tell(),
                Told::HandOver => {
                    // What it starts from; without it, it starts from the last snapshot that was written.
                    let _ = S::close(&self.limiter, &self.settings).await;
                    match estate.hand_over() {
                        Ok(child) => {
                            Event::HandingOver { successor: child.id() }.tell();
                            successor = Some(child);
                        }
                        Err(error) => Event::HandOverFailed { reason: &error }.tell(),
                    }
                }
            }
        }
    }

    /// Opens every door that is not off.
    async fn open(&self, mut inherited: Inherited) -> Result<Vec<Opened>, Failure> {
        let Settings { gateway, http, grpc, resp, admin, socket_mode, .. } = &self.settings;
        let gateway = gateway.as_ref().map(|gateway| (Kind::Gateway, &gateway.at));
        let others = [
            (Kind::Http, http),
            (Kind::Grpc, &grpc.at),
            (Kind::Resp, &resp.at),
            (Kind::Admin, &admin.at),
        ];
        let mut opened = Vec::new();
        for (kind, at) in gateway.into_iter().chain(others) {
            opened.extend(opening::open(kind, at, *socket_mode, &mut inherited).await?);
        }
        if inherited.left() > 0 {
            Event::SocketsLeft { count: inherited.left() }.tell();
        }
        if opened.is_empty() {
            return Err(Failure::Usage(
                "every listener is off, so there is nothing to serve\n  write: --http 127.0.0.1:8081"
                    .to_owned(),
            ));
        }
        Ok(opened)
    }

    /// What goes on beside the doors.
    fn keep_house(&self, hang_up: Signal) -> JoinSet<()> {
        let mut keepers = JoinSet::new();
        S::keep(&self.limiter, &self.settings, &self.status, &mut keepers);
        if let Some(origin) = self.origin.lock().take() {
            keepers.spawn(self.reloader(origin).run(hang_up));
        }
        let office = Arc::clone(&self.office);
        keepers.spawn(async move { office.keep().await });
        keepers.spawn(bursts::tell(Arc::clone(&self.top)));
        keepers
    }

    fn reloader(&self, origin: Origin) -> Reloader<S, S::Local> {
        Reloader {
            source: self.source.clone(),
            secret: self.settings.secret,
            limiter: Arc::clone(&self.limiter),
            status: Arc::clone(&self.status),
            seen: Some(self.content),
            key_file: self.key_file.clone(),
            section: self.section.clone(),
            office: Arc::clone(&self.office),
            extraction: Extraction::of(&self.settings),
            origin,
            in_force: Arc::clone(&self.in_force),
        }
    }
}
