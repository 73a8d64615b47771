//! `tidegate serve`: opens the doors, keeps house beside them, and closes up in order.

mod bursts;
mod certificate;
mod descriptors;
mod doors;
mod greeting;
mod handover;
mod inherited;
mod notify;
mod opening;
mod socket_file;
mod stop;
mod telling;

use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::admin::Admin;
use tidegate_control::{Draft, Metrics, Office, Top, ViolationLog};
use tidegate_edge::Status;
use tidegate_edge::gateway::{self, Gateway};
use tidegate_edge::grpc;
use tidegate_edge::http::{self, Door};
use tidegate_edge::listen::{self, Crew, Place, Tls};
use tidegate_edge::resp;
use tidegate_edge::trace::Tracer;
use tidegate_engine::{Limiter, Observer, Stopwatch};
use tidegate_memory::FastClock;
use tokio::signal::unix::Signal;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::cli::ServeArgs;
use crate::config::{Certificate, GatewaySettings, Layer, Settings, StoreSettings};
use crate::failure::Failure;
use crate::office::{self, Start, WallClock};
use crate::reload::Reloader;
use crate::source::{Loaded, Source};
use crate::store::{self, Embedded, Shared, Tended};
use crate::telemetry::{self, Event};
use descriptors::Descriptors;
use doors::{Doors, Kind};
pub(crate) use greeting::{Addresses, Asker};
use handover::Estate;
use inherited::Inherited;
use opening::Opened;
use socket_file::SocketFile;
use stop::{Signals, Told};

/// How long a client of the gateway may take for the next piece of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a caller of the gRPC door may say nothing.
const GRPC_IDLE_TIMEOUT: Duration = Duration::from_secs(2 * 3_600);

/// The most requests that wait their turn at the gateway.
const MAX_WAITING: usize = 10_000;

/// The most connections of those who administer.
const ADMIN_CONNECTIONS: usize = 500;

/// How long a connection of a Redis client may say nothing.
const RESP_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

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
    draft: Option<Arc<Draft>>,
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
    if count == 0 {
        Event::NoRules { source: &name }.tell();
    }
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
        let draft = start.draft.clone();
        let office = office::open(start, &source, &settings, &limiter, &status, clock);
        let office = Arc::new(office);
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
            draft,
            log,
            metrics,
            top,
            tracer,
        }
    }

    async fn run(self, inherited: Inherited, asker: Option<Asker>) -> Result<Outcome, Failure> {
        // Before anyone is told that we listen, so that no signal from then on is missed.
        let mut signals = Signals::listen()?;
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
                S::close(&self.limiter, &self.settings).await;
            } else {
                // The counters are the successor's business by now.
                keepers.shutdown().await;
                doors.close().await;
            }
            self.close_books(writers).await;
        };
        tokio::select! {
            () = closing => {
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
                    // What it starts from.
                    S::close(&self.limiter, &self.settings).await;
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
                "every door is off, so there is nothing to serve\n  write: --http 127.0.0.1:8081"
                    .to_owned(),
            ));
        }
        Ok(opened)
    }

    /// Serves requests from now on, and says so.
    fn serve(
        &self,
        opened: Vec<Opened>,
        keepers: &mut JoinSet<()>,
        asker: Option<Asker>,
    ) -> Result<Doors, Failure> {
        let descriptors = Descriptors::raise();
        let crew = Crew::start("door", self.settings.door_threads)?;
        let gateway = self.settings.gateway.as_ref().map(|gateway| gateway.threads);
        let gateway_crew = gateway.map(|threads| Crew::start("gateway", threads)).transpose()?;
        let crews = gateway_crew.iter().chain([&crew]).cloned().collect();
        let mut doors = Doors::new(Arc::clone(&self.status), crews);
        let mut open = Vec::new();
        for Opened { kind, listener, .. } in opened {
            let at = listener.place()?;
            open.push((kind, at.clone()));
            match kind {
                Kind::Gateway => {
                    let Some(settings) = &self.settings.gateway else { continue };
                    let gateway = Arc::new(self.gateway(settings)?);
                    let kept = Arc::clone(&gateway);
                    keepers.spawn(async move { kept.keep().await });
                    let mut listen = self.listening(kind, descriptors);
                    (listen.http2, listen.proxy_protocol) = (true, settings.proxy_protocol);
                    listen.crew.clone_from(&gateway_crew);
                    listen.tls = certified(settings.certificate.as_ref(), keepers);
                    doors.serve(kind, listener, gateway, listen);
                }
                Kind::Http => {
                    self.warn_if_open(kind, &at);
                    let mut listen = self.listening(kind, descriptors);
                    listen.crew = Some(crew.clone());
                    doors.serve(kind, listener, Arc::new(self.door()), listen);
                }
                Kind::Grpc => {
                    let listen = listen::Settings {
                        http2: true,
                        max_age: Some(self.settings.grpc.max_age),
                        // Envoy keeps idle connections for an hour, and should be the first to close.
                        idle_timeout: GRPC_IDLE_TIMEOUT,
                        crew: Some(crew.clone()),
                        ..self.listening(kind, descriptors)
                    };
                    doors.serve(kind, listener, Arc::new(self.grpc_door()), listen);
                }
                Kind::Resp => {
                    self.warn_if_open(kind, &at);
                    // Pools of Redis clients keep connections for good and do not expect them closed.
                    let mut listen = self.listening(kind, descriptors);
                    listen.idle_timeout = RESP_IDLE_TIMEOUT;
                    listen.crew = Some(crew.clone());
                    listen.tls = certified(self.settings.resp.certificate.as_ref(), keepers);
                    doors.serve_resp(listener, self.resp(), listen);
                }
                Kind::Admin => {
                    let guard = self.settings.admin.guard.clone();
                    let office = Arc::clone(&self.office);
                    let admin = Admin::new(office, self.door(), guard, self.telling());
                    let mut listen = self.listening(kind, descriptors);
                    listen.max_connections = listen.max_connections.min(ADMIN_CONNECTIONS);
                    doors.serve(kind, listener, Arc::new(admin), listen);
                }
            }
        }
        Addresses::new(open).tell(self.source.is_built_in(), asker);
        Ok(doors)
    }

    /// Says it when others than this machine can come in and no token tells who may do more than ask.
    fn warn_if_open(&self, kind: Kind, at: &Place) {
        if let Place::Tcp(at) = *at
            && !at.ip().is_loopback()
            && self.settings.token().is_none()
        {
            Event::OpenWithoutToken { door: kind.name(), at }.tell();
        }
    }

    fn listening(&self, kind: Kind, descriptors: Descriptors) -> listen::Settings {
        let usual = listen::Settings::default();
        let max_connections = descriptors.connections(kind, usual.max_connections);
        listen::Settings {
            max_connections,
            // One address never has all of them.
            max_connections_per_ip: usual.max_connections_per_ip.min(max_connections.div_ceil(2)),
            drain_timeout: self.settings.drain_timeout,
            ..usual
        }
    }

    fn gateway(&self, settings: &GatewaySettings) -> Result<Gateway<S, S::Local>, Failure> {
        let settings = gateway::Settings {
            headers: self.settings.headers,
            max_body_bytes: settings.max_body.0,
            body_timeout: BODY_TIMEOUT,
            max_waiting: MAX_WAITING,
            drain_timeout: self.settings.drain_timeout,
            threads: settings.threads,
            access_log: settings.access_log.then(|| telling::access_log(self.settings.secret)),
            tracer: self.tracer.clone(),
            routes: settings.routes.clone(),
            upstreams: settings.upstreams.clone(),
        };
        Gateway::new(Arc::clone(&self.limiter), Arc::clone(&self.status), settings)
            .map_err(|error| Failure::CouldNot(error.to_string()))
    }

    fn door(&self) -> Door<S, S::Local> {
        let settings = http::Settings {
            headers: self.settings.headers,
            envoy: self.settings.grpc.envoy,
            token: self.settings.token().cloned(),
            tracer: self.tracer.clone(),
            ..http::Settings::default()
        };
        Door::new(Arc::clone(&self.limiter), Arc::clone(&self.status), settings)
    }

    fn grpc_door(&self) -> grpc::Door<S, S::Local> {
        let (envoy, tracer) = (self.settings.grpc.envoy, self.tracer.clone());
        let settings = grpc::Settings { envoy, tracer, ..grpc::Settings::default() };
        grpc::Door::new(Arc::clone(&self.limiter), Arc::clone(&self.status), settings)
    }

    fn resp(&self) -> resp::Door<S, S::Local> {
        let token = self.settings.token().cloned();
        let settings = resp::Settings { secret: self.settings.secret, token };
        resp::Door::new(Arc::clone(&self.limiter), settings)
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
            key_file: self.key_file.clone(),
            section: self.section.clone(),
            office: Arc::clone(&self.office),
            draft: self.draft.clone(),
        };
        keepers.spawn(reloader.run(hang_up));
        let office = Arc::clone(&self.office);
        keepers.spawn(async move { office.keep().await });
        keepers.spawn(bursts::tell(Arc::clone(&self.top)));
        keepers
    }
}

/// The certificate of a door, replaced from now on when its files change.
fn certified(certificate: Option<&Certificate>, keepers: &mut JoinSet<()>) -> Option<Tls> {
    let certificate = certificate?;
    keepers.spawn(certificate::keep(certificate.clone()));
    Some(certificate.tls.clone())
}
