//! The clients before the demo's server: each asks as is its habit, over connections that are kept.

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

/// An answer that takes longer is not waited for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Everybody who asks.
pub(super) struct DemoClients {
    client: Client<HttpConnector, Full<Bytes>>,
    gateway: Option<ListenAddr>,
    http: Option<ListenAddr>,
}

impl DemoClients {
    pub(super) fn new(open: &ListenerAddresses) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let place = |door| open.get(door).cloned();
        Self { client, gateway: place("gateway"), http: place("http") }
    }

    /// Asks for ever.
    pub(super) async fn run(&self) {
        let all =
            PROFILES.iter().zip(1..).map(|(habit, seed)| self.run_profile(*habit, DemoRng(seed)));
        join_all(all).await;
    }

    async fn run_profile(&self, habit: ClientProfile, mut draw: DemoRng) {
        let mut next = tokio::time::interval(habit.interval);
        // Who was held up does not catch up: the rate has an end.
        next.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            next.tick().await;
            let asks = (0..habit.burst).map(|_| self.send((habit.make_request)(&mut draw)));
            join_all(asks).await;
        }
    }

    /// Sends one; what is answered, or whether anything is, the dashboard shows.
    async fn send(&self, ask: DemoRequest) {
        let Some(request) = self.build_request(ask) else { return };
        let answered = async {
            let response = self.client.request(request).await.ok()?;
            response.into_body().collect().await.ok()
        };
        let _ = tokio::time::timeout(REQUEST_TIMEOUT, answered).await;
    }

    fn build_request(&self, ask: DemoRequest) -> Option<Request<Full<Bytes>>> {
        let DemoRequest { api: door, method, path, api_key, ip } = ask;
        match door {
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
