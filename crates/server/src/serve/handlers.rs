//! Builds the handler of each listener and its listen settings.

use std::sync::Arc;
use std::time::Duration;

use tidegate_admin::AdminApi;
use tidegate_api::grpc;
use tidegate_api::http::{self, HttpApi};
use tidegate_api::resp;
use tidegate_gateway as gateway;
use tidegate_gateway::Gateway;
use tidegate_net::listen::{self, ListenAddr, ServerTls, WorkerPool};
use tokio::task::JoinSet;

use super::bind::OpenedListener;
use super::fd_limit::FdLimit;
use super::listeners::{ListenerKind, RunningListeners};
use super::startup_banner::{AddressSender, ListenerAddresses};
use super::{ServerRuntime, certificate_reload, observability, upstream_probe};
use crate::config::{GatewaySettings, ListenerCertificate};
use crate::error::CommandError;
use crate::store::ManagedStore;
use crate::telemetry::ServerEvent;

/// How long a gateway client may take to send the next part of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Idle timeout for gRPC connections.
const GRPC_IDLE_TIMEOUT: Duration = Duration::from_secs(2 * 3_600);

/// Maximum number of requests delayed by the gateway at a time.
const MAX_DELAYED_REQUESTS: usize = 10_000;

/// Maximum number of connections to the admin API.
const MAX_ADMIN_CONNECTIONS: usize = 500;

/// Idle timeout for RESP connections.
const RESP_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

impl<S: ManagedStore> ServerRuntime<S> {
    /// Starts serving on the opened listeners and announces their addresses.
    pub(super) fn serve_listeners(
        &self,
        opened: Vec<OpenedListener>,
        background: &mut JoinSet<()>,
        addresses: Option<AddressSender>,
    ) -> Result<RunningListeners, CommandError> {
        let descriptors = FdLimit::raise();
        let api_workers = WorkerPool::start("api", self.settings.api_threads)?;
        let gateway = self.settings.gateway.as_ref().map(|gateway| gateway.threads);
        let gateway_workers =
            gateway.map(|threads| WorkerPool::start("gateway", threads)).transpose()?;
        let pools = gateway_workers.iter().chain([&api_workers]).cloned().collect();
        let mut listeners = RunningListeners::new(Arc::clone(&self.status), pools);
        let mut open = Vec::new();
        for OpenedListener { kind, listener, .. } in opened {
            let at = listener.local_addr()?;
            open.push((kind, at.clone()));
            match kind {
                ListenerKind::Gateway => {
                    let Some(settings) = &self.settings.gateway else { continue };
                    let gateway = Arc::new(self.build_gateway(settings)?);
                    let maintained = Arc::clone(&gateway);
                    background.spawn(async move { maintained.run_maintenance().await });
                    background
                        .spawn(upstream_probe::report_unreachable(settings.upstreams.clone()));
                    let mut listen = self.listen_settings(kind, descriptors);
                    (listen.http2, listen.proxy_protocol) = (true, settings.proxy_protocol);
                    listen.workers.clone_from(&gateway_workers);
                    listen.tls = watch_certificate(settings.certificate.as_ref(), background);
                    listeners.serve(kind, listener, gateway, listen);
                }
                ListenerKind::Http => {
                    self.warn_if_unauthenticated(kind, &at);
                    let mut listen = self.listen_settings(kind, descriptors);
                    listen.workers = Some(api_workers.clone());
                    listeners.serve(kind, listener, Arc::new(self.build_http_api()), listen);
                }
                ListenerKind::Grpc => {
                    let listen = listen::Settings {
                        http2: true,
                        windows: listen::Http2Windows::GRPC,
                        max_age: Some(self.settings.grpc.max_age),
                        // Envoy closes idle connections after an hour and should be the side that
                        // closes first.
                        idle_timeout: GRPC_IDLE_TIMEOUT,
                        workers: Some(api_workers.clone()),
                        ..self.listen_settings(kind, descriptors)
                    };
                    listeners.serve(kind, listener, Arc::new(self.build_grpc_api()), listen);
                }
                ListenerKind::Resp => {
                    self.warn_if_unauthenticated(kind, &at);
                    // Redis connection pools keep connections open and do not expect the server to
                    // close them.
                    let mut listen = self.listen_settings(kind, descriptors);
                    listen.idle_timeout = RESP_IDLE_TIMEOUT;
                    listen.workers = Some(api_workers.clone());
                    listen.tls =
                        watch_certificate(self.settings.resp.certificate.as_ref(), background);
                    listeners.serve_resp(listener, self.build_resp_api(), listen);
                }
                ListenerKind::Admin => {
                    let guard = self.settings.admin.guard.clone();
                    let manager = Arc::clone(&self.rule_manager);
                    let observability = self.observability();
                    if let Some(history) = observability.live.history() {
                        background.spawn(async move { history.run().await });
                    }
                    let admin = AdminApi::new(manager, self.build_http_api(), guard, observability);
                    let mut listen = self.listen_settings(kind, descriptors);
                    listen.max_connections = listen.max_connections.min(MAX_ADMIN_CONNECTIONS);
                    listeners.serve(kind, listener, Arc::new(admin), listen);
                }
            }
        }
        ListenerAddresses::new(open).announce(self.source.is_built_in(), addresses);
        Ok(listeners)
    }

    /// Logs a warning if other machines can reach a listener and no token is set.
    fn warn_if_unauthenticated(&self, kind: ListenerKind, at: &ListenAddr) {
        if let ListenAddr::Tcp(at) = *at
            && !at.ip().is_loopback()
            && self.settings.token().is_none()
        {
            ServerEvent::OpenWithoutToken { api: kind.name(), at }.log();
        }
    }

    fn listen_settings(&self, kind: ListenerKind, descriptors: FdLimit) -> listen::Settings {
        let defaults = listen::Settings::default();
        let max_connections = descriptors.max_connections(kind, defaults.max_connections);
        listen::Settings {
            max_connections,
            // A single address may use at most half of the connections.
            max_connections_per_ip: defaults
                .max_connections_per_ip
                .min(max_connections.div_ceil(2)),
            drain_timeout: self.settings.drain_timeout,
            ..defaults
        }
    }

    fn build_gateway(
        &self,
        settings: &GatewaySettings,
    ) -> Result<Gateway<S, S::Local>, CommandError> {
        let settings = gateway::Settings {
            headers: self.settings.headers,
            max_body_bytes: settings.max_body.0,
            passthrough_headers: settings.pass_headers.clone(),
            refund_unreachable: settings.refund_unreachable,
            body_timeout: BODY_TIMEOUT,
            max_waiting: MAX_DELAYED_REQUESTS,
            drain_timeout: self.settings.drain_timeout,
            threads: settings.threads,
            access_log: settings.access_log.then(|| observability::access_log(&self.settings)),
            tracer: self.tracer.clone(),
            routes: settings.routes.clone(),
            upstreams: settings.upstreams.clone(),
        };
        Gateway::new(Arc::clone(&self.limiter), Arc::clone(&self.status), settings)
            .map_err(|error| CommandError::Failed(error.to_string()))
    }

    fn build_http_api(&self) -> HttpApi<S, S::Local> {
        let settings = http::Settings {
            headers: self.settings.headers,
            envoy: self.settings.grpc.envoy,
            token: self.settings.token().cloned(),
            tracer: self.tracer.clone(),
            ..http::Settings::default()
        };
        HttpApi::new(Arc::clone(&self.limiter), Arc::clone(&self.status), settings)
    }

    fn build_grpc_api(&self) -> grpc::GrpcApi<S, S::Local> {
        let (envoy, tracer) = (self.settings.grpc.envoy, self.tracer.clone());
        let settings = grpc::Settings { envoy, tracer, ..grpc::Settings::default() };
        grpc::GrpcApi::new(Arc::clone(&self.limiter), Arc::clone(&self.status), settings)
    }

    fn build_resp_api(&self) -> resp::RespApi<S, S::Local> {
        let token = self.settings.token().cloned();
        let settings = resp::Settings { secret: self.settings.secret, token };
        resp::RespApi::new(Arc::clone(&self.limiter), settings)
    }
}

/// Returns a listener's TLS configuration and starts a task that reloads its certificate on change.
fn watch_certificate(
    certificate: Option<&ListenerCertificate>,
    background: &mut JoinSet<()>,
) -> Option<ServerTls> {
    let certificate = certificate?;
    background.spawn(certificate_reload::watch_files(certificate.clone()));
    Some(certificate.tls.clone())
}
