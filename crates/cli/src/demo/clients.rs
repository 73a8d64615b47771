//! The simulated clients of the demo. Each sends requests according to its profile, over persistent
//! connections.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tidegate_net::listen::ListenAddr;
use tokio::time::MissedTickBehavior;

use super::client_profiles::{ClientProfile, DemoApi, DemoRequest, DemoRng, PROFILES};
use tidegate_server::serve::ListenerAddresses;

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// All clients of the demo, which share one connection pool.
pub(super) struct DemoClients {
    client: Client<HttpConnector, Full<Bytes>>,
    gateway: Option<ListenAddr>,
    http: Option<ListenAddr>,
}

impl DemoClients {
    pub(super) fn new(addresses: &ListenerAddresses) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let address = |listener| addresses.get(listener).cloned();
        Self { client, gateway: address("gateway"), http: address("http") }
    }

    /// Sends requests until dropped.
    pub(super) async fn run(&self) {
        let profiles = PROFILES
            .iter()
            .zip(1..)
            .map(|(profile, seed)| self.run_profile(*profile, DemoRng(seed)));
        join_all(profiles).await;
    }

    async fn run_profile(&self, profile: ClientProfile, mut rng: DemoRng) {
        let mut interval = tokio::time::interval(profile.interval);
        // A delayed client does not catch up, which keeps the rate bounded.
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let requests = (0..profile.burst).map(|_| self.send((profile.make_request)(&mut rng)));
            join_all(requests).await;
        }
    }

    /// Sends one request and ignores the response; the dashboard shows the result.
    async fn send(&self, request: DemoRequest) {
        let Some(request) = self.build_request(request) else { return };
        let response = async {
            let response = self.client.request(request).await.ok()?;
            response.into_body().collect().await.ok()
        };
        let _ = tokio::time::timeout(REQUEST_TIMEOUT, response).await;
    }

    fn build_request(&self, request: DemoRequest) -> Option<Request<Full<Bytes>>> {
        let DemoRequest { api, method, path, api_key, ip } = request;
        match api {
            DemoApi::Gateway => {
                let url = format!("http://{}{path}", self.gateway.as_ref()?);
                let request = Request::builder().method(method).uri(url);
                let request = request.header("x-forwarded-for", ip);
                let request = match api_key {
                    Some(key) => request.header("x-api-key", key),
                    None => request,
                };
                request.body(Full::default()).ok()
            }
            DemoApi::Http => {
                let url = format!("http://{}/v1/check", self.http.as_ref()?);
                let mut facts = json!({"ip": ip, "method": method, "path": path});
                if let Some(key) = api_key {
                    facts["api_key"] = key.into();
                }
                let body = json!({"facts": facts}).to_string();
                let request = Request::post(url).header(CONTENT_TYPE, "application/json");
                request.body(Full::new(body.into())).ok()
            }
        }
    }
}
