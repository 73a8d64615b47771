//! `tidegate serve`: opens the listeners, runs the background tasks, and shuts down in order.

mod bind;
mod burst_log;
mod certificate_reload;
mod fd_limit;
mod handlers;
mod handover;
mod inherited_sockets;
mod listeners;
mod observability;
mod sd_notify;
mod signals;
mod socket_file;
mod startup_banner;
mod upstream_probe;

use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_core::key::Secret;
use tidegate_limiter::{DecisionObserver, DecisionTimer, Limiter};
use tidegate_memory::FastClock;
use tidegate_rules::Rule;
use tidegate_rulestore::RuleManager;
use tidegate_telemetry::trace::Tracer;
use tidegate_telemetry::{DecisionMetrics, TopKeys, ViolationLog};
use tidegate_web::ProcessStatus;
use tokio::signal::unix::Signal;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::CommandOutcome;
use crate::args::ServeArgs;
use crate::config::{PartialSettings, Settings, StoreSettings};
use crate::error::CommandError;
use crate::missing_facts::ExtractionListeners;
use crate::regions::{self, RegionLinks};
use crate::reload::Reloader;
use crate::rule_manager::{self, InitialRules, RuleSetOrigin, WallClock};
use crate::rule_source::{DocumentSource, LoadedDocument};
use crate::store::{self, EmbeddedStore, ManagedStore, SharedStore};
use crate::store_calls::StoreCallMetrics;
use crate::telemetry::{self, ServerEvent};
use bind::OpenedListener;
use handover::ProcessHandover;
use inherited_sockets::InheritedSockets;
use listeners::{ListenerKind, RunningListeners};
use signals::{ShutdownSignal, SignalListener};
use socket_file::SocketFile;
pub use startup_banner::{AddressSender, ListenerAddresses};

/// With more rules than this, the log lines that list them have level debug.
const MANY_RULES: usize = 50;

/// All parts of a running server.
struct ServerRuntime<S: ManagedStore> {
    source: DocumentSource,
    settings: Settings,
    section: PartialSettings,
    key_file: Option<PathBuf>,
    content_hash: u64,
    limiter: Arc<Limiter<S, S::Local>>,
    status: Arc<ProcessStatus>,
    rule_manager: Arc<RuleManager>,
    /// The source that the rules follow, until the reloader takes it.
    origin: Mutex<Option<RuleSetOrigin>>,
    /// Notified when a version was installed.
    rules_installed: Arc<Notify>,
    log: Arc<ViolationLog>,
    metrics: Arc<DecisionMetrics>,
    top: Arc<TopKeys>,
    tracer: Option<Tracer>,
    store_calls: Arc<StoreCallMetrics>,
    regions: Arc<RegionLinks>,
}

/// Runs the server until a signal stops it. Listener addresses are printed on stdout, or sent to
/// `addresses` if the caller runs the server inside its own process.
///
/// # Errors
/// When the settings or rules are invalid, or a listener cannot be opened.
pub fn run(
    args: ServeArgs,
    addresses: Option<AddressSender>,
) -> Result<CommandOutcome, CommandError> {
    let inherited = InheritedSockets::from_env()?;
    let source = DocumentSource::new(&args.rules);
    let loaded = source.load()?;
    let source = source.in_region_of(&loaded);
    let settings = args.settings.with_fallback(loaded.section.clone());
    let settings = Settings::check(settings, loaded.region())?;
    telemetry::init_logging(settings.log, settings.log_level);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::Failed(format!("cannot start the runtime: {error}")))?;
    let outcome = runtime.block_on(start_runtime(source, loaded, settings, inherited, addresses));
    // Tasks that still run have exceeded the drain timeout.
    runtime.shutdown_background();
    outcome
}

/// Loads the rules and runs the server on the configured store.
async fn start_runtime(
    source: DocumentSource,
    loaded: LoadedDocument,
    settings: Settings,
    inherited: InheritedSockets,
    addresses: Option<AddressSender>,
) -> Result<CommandOutcome, CommandError> {
    let clock = rule_manager::wall_clock();
    let (rules, initial) =
        rule_manager::load_initial_rules(&source, &loaded, &settings, &clock).await?;
    let (count, version) = (rules.rules().len(), rules.version());
    let name = initial.repository.name().to_owned();
    ServerEvent::Started { source: &name, rules: count, version }.log();
    for rule in rules.rules() {
        ServerEvent::ActiveRule { rule, many: count > MANY_RULES }.log();
    }
    if !rules.rules().iter().any(Rule::is_active) {
        ServerEvent::NoRules { source: &name }.log();
    }
    if settings.secret == Secret::UNSET {
        ServerEvent::SecretUnset.log();
    }
    ExtractionListeners::from_settings(&settings).check(&rules, &source)?;
    if let Some(gateway) = &settings.gateway {
        gateway.check_hash_inputs(rules.identity())?;
    }
    let embedded = EmbeddedStore::with_clock(FastClock::new(), settings.memory_limit.0);
    match &settings.store {
        StoreSettings::Memory => {
            let limiter = Limiter::new(embedded, rules);
            ServerRuntime::new(source, settings, loaded, limiter, initial, clock)
                .run(inherited, addresses)
                .await
        }
        StoreSettings::Redis(redis) => {
            let shared = SharedStore::start(&store::options(redis));
            let lenders = settings.region_stores.iter().map(|store| store.region.clone());
            let limiter = store::shared_limiter(shared, embedded, rules).with_lenders(lenders);
            ServerRuntime::new(source, settings, loaded, limiter, initial, clock)
                .run(inherited, addresses)
                .await
        }
    }
}

impl<S: ManagedStore> ServerRuntime<S> {
    fn new(
        source: DocumentSource,
        settings: Settings,
        loaded: LoadedDocument,
        limiter: Limiter<S, S::Local>,
        initial: InitialRules,
        clock: WallClock,
    ) -> Self {
        let (secret, stores) = (settings.secret, &settings.region_stores);
        let regions = Arc::new(RegionLinks::start(loaded.region(), secret, stores));
        // Until their markers have been read.
        regions.iter().for_each(|link| limiter.set_lender_usable(&link.region, false));
        let log = Arc::new(observability::violation_log(&settings, Arc::clone(&clock)));
        let (metrics, decision_log) = observability::decision_observers::<S>(&settings);
        let metrics = Arc::new(metrics);
        let top = Arc::new(TopKeys::new(
            rule_manager::violation_identities(&settings),
            Arc::clone(&clock),
        ));
        let mut limiter = limiter
            .with_observer(Arc::clone(&log) as Arc<dyn DecisionObserver>)
            .with_observer(Arc::clone(&metrics) as Arc<dyn DecisionObserver>)
            .with_observer(Arc::clone(&top) as Arc<dyn DecisionObserver>)
            .with_timer(Arc::clone(&metrics) as Arc<dyn DecisionTimer>);
        if let Some(decision_log) = decision_log {
            limiter = limiter.with_observer(Arc::new(decision_log));
        }
        let (tracer, limiter) = observability::with_tracer(&settings, limiter);
        let limiter = Arc::new(limiter);
        let status = Arc::new(ProcessStatus::new());
        let opened =
            rule_manager::open_manager(initial, &source, &settings, &limiter, &status, clock);
        let (manager, origin, rules_installed) = opened;
        let (rule_manager, origin) = (Arc::new(manager), Mutex::new(Some(origin)));
        let LoadedDocument { section, key_file, content_hash, .. } = loaded;
        Self {
            source,
            settings,
            section,
            key_file,
            content_hash,
            limiter,
            status,
            rule_manager,
            origin,
            rules_installed,
            log,
            metrics,
            top,
            tracer,
            store_calls: Arc::new(StoreCallMetrics::default()),
            regions,
        }
    }

    async fn run(
        self,
        inherited: InheritedSockets,
        addresses: Option<AddressSender>,
    ) -> Result<CommandOutcome, CommandError> {
        // Listen for signals before announcing the listeners, so that no later signal is missed.
        let mut signals = SignalListener::listen()?;
        signals::exit_on_second_stop()?;
        let hang_up = signals::listen_for_hang_up()?;
        let mut opened = self.open_listeners(inherited).await?;
        let mut handover = ProcessHandover::new()?;
        for listener in &opened {
            handover.add_socket(listener)?;
        }
        let mut files: Vec<_> =
            opened.iter_mut().filter_map(|listener| listener.file.take()).collect();
        S::prepare(&self.limiter, &self.settings).await;
        self.status.mark_rules_active(self.limiter.rules().version());
        let mut background = self.spawn_background(hang_up);
        let writers = self.spawn_writers();
        let mut listeners = self.serve_listeners(opened, &mut background, addresses)?;
        sd_notify::notify_systemd(sd_notify::SystemdState::Ready);
        if let Some(predecessor) = handover::stop_predecessor() {
            ServerEvent::PredecessorStopped { predecessor: predecessor.as_raw_nonzero().get() }
                .log();
        }
        files.iter_mut().for_each(SocketFile::claim);
        let (signal, successor) =
            self.wait_for_stop(&mut signals, &mut listeners, &handover).await?;
        if successor.is_some() {
            files.iter_mut().for_each(SocketFile::release);
        }
        // Remove the files while the sockets are open: until then no other file can have their
        // inode number.
        drop(files);
        // The copies of the sockets would keep accepting connections that no process serves.
        drop(handover);
        self.status.start_drain();
        ServerEvent::Draining { signal }.log();
        let closing = async {
            if successor.is_none() {
                sd_notify::notify_systemd(sd_notify::SystemdState::Stopping);
                listeners.close().await;
                background.shutdown().await;
                let saved = S::close(&self.limiter, &self.settings, &self.regions).await;
                self.close_writers(writers).await;
                saved
            } else {
                // The successor owns the counters by now, so they are not saved again.
                background.shutdown().await;
                listeners.close().await;
                self.close_writers(writers).await;
                Ok(())
            }
        };
        tokio::select! {
            closed = closing => {
                closed?;
                ServerEvent::Stopped.log();
                Ok(CommandOutcome::Success)
            }
            signal = signals.next_stop() => {
                ServerEvent::StoppedForcibly { signal }.log();
                Err(CommandError::Failed("forced to stop before all requests were answered".to_owned()))
            }
        }
    }

    /// Waits for a stop signal. Also returns the successor process, if one has taken over.
    async fn wait_for_stop(
        &self,
        signals: &mut SignalListener,
        listeners: &mut RunningListeners,
        handover: &ProcessHandover,
    ) -> Result<(&'static str, Option<Child>), CommandError> {
        let mut successor: Option<Child> = None;
        loop {
            let signal = tokio::select! {
                signal = signals.next_signal() => signal,
                error = listeners.wait_for_failure() => return Err(error),
            };
            // A successor that has already exited does not count.
            successor = successor.and_then(handover::if_running);
            match signal {
                ShutdownSignal::Stop(signal) => return Ok((signal, successor)),
                ShutdownSignal::Handover if successor.is_some() => {
                    ServerEvent::HandoverInProgress.log();
                }
                ShutdownSignal::Handover => {
                    // Save the counters for the successor. If that fails, it starts from the last
                    // snapshot.
                    let _ = S::close(&self.limiter, &self.settings, &self.regions).await;
                    match handover.spawn_successor() {
                        Ok(child) => {
                            ServerEvent::HandoverStarted { successor: child.id() }.log();
                            successor = Some(child);
                        }
                        Err(error) => ServerEvent::HandoverFailed { reason: &error }.log(),
                    }
                }
            }
        }
    }

    /// Opens every listener that is not off.
    async fn open_listeners(
        &self,
        mut inherited: InheritedSockets,
    ) -> Result<Vec<OpenedListener>, CommandError> {
        let Settings { gateway, http, grpc, resp, admin, socket_mode, .. } = &self.settings;
        let gateway = gateway.as_ref().map(|gateway| (ListenerKind::Gateway, &gateway.listen));
        let others = [
            (ListenerKind::Http, http),
            (ListenerKind::Grpc, &grpc.listen),
            (ListenerKind::Resp, &resp.listen),
            (ListenerKind::Admin, &admin.listen),
        ];
        let mut opened = Vec::new();
        for (kind, at) in gateway.into_iter().chain(others) {
            opened.extend(bind::open_listener(kind, at, *socket_mode, &mut inherited).await?);
        }
        if inherited.remaining() > 0 {
            ServerEvent::SocketsUnused { count: inherited.remaining() }.log();
        }
        if opened.is_empty() {
            return Err(CommandError::Usage(
                "all listeners are off, so there is nothing to serve\n  write: --http 127.0.0.1:8081"
                    .to_owned(),
            ));
        }
        Ok(opened)
    }

    /// Starts the background tasks.
    fn spawn_background(&self, hang_up: Signal) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (limiter, settings, status) = (&self.limiter, &self.settings, &self.status);
        S::spawn_tasks(limiter, settings, status, &self.store_calls, &self.regions, &mut tasks);
        if let Some(origin) = self.origin.lock().take() {
            tasks.spawn(self.build_reloader(origin).run(hang_up));
        }
        let manager = Arc::clone(&self.rule_manager);
        tasks.spawn(async move { manager.run().await });
        tasks.spawn(burst_log::log_bursts(Arc::clone(&self.top)));
        if self.regions.has_region() {
            let (limiter, status) = (Arc::clone(limiter), Arc::clone(status));
            tasks.spawn(regions::report_states(limiter, Arc::clone(&self.regions), status));
        }
        tasks
    }

    fn build_reloader(&self, origin: RuleSetOrigin) -> Reloader<S, S::Local> {
        Reloader {
            source: self.source.clone(),
            secret: self.settings.secret,
            limiter: Arc::clone(&self.limiter),
            status: Arc::clone(&self.status),
            content_hash: Some(self.content_hash),
            key_file: self.key_file.clone(),
            section: self.section.clone(),
            rule_manager: Arc::clone(&self.rule_manager),
            extraction: ExtractionListeners::from_settings(&self.settings),
            origin,
            rules_installed: Arc::clone(&self.rules_installed),
        }
    }
}
