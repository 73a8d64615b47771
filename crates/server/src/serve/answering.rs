//! Who answers at each door, and how it is listened at.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::admin::Admin;
use tidegate_edge::gateway::{self, Gateway};
use tidegate_edge::grpc;
use tidegate_edge::http::{self, Door};
use tidegate_edge::listen::{self, Crew, Place, Tls};
use tidegate_edge::resp;
use tokio::task::JoinSet;

use super::descriptors::Descriptors;
use super::doors::{Doors, Kind};
use super::greeting::{Addresses, Asker};
use super::opening::Opened;
use super::{House, certificate, reach, telling};
use crate::config::{Certificate, GatewaySettings};
use crate::failure::Failure;
use crate::store::Tended;
use crate::telemetry::Event;

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

impl<S: Tended> House<S> {
    /// Serves requests from now on, and says so.
    pub(super) fn serve(
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
                    keepers.spawn(reach::report(settings.upstreams.clone()));
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
                        windows: listen::Windows::CALLS,
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
                    let telling = self.telling();
                    if let Some(history) = telling.live.history() {
                        keepers.spawn(async move { history.run().await });
                    }
                    let admin = Admin::new(office, self.door(), guard, telling);
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
            passed_headers: settings.pass_headers.clone(),
            refund_unreachable: settings.refund_unreachable,
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
}

/// The certificate of a door, replaced from now on when its files change.
fn certified(certificate: Option<&Certificate>, keepers: &mut JoinSet<()>) -> Option<Tls> {
    let certificate = certificate?;
    keepers.spawn(certificate::keep(certificate.clone()));
    Some(certificate.tls.clone())
}
