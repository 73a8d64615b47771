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
use tidegate_edge::listen::Place;
use tokio::time::MissedTickBehavior;

use super::habits::{Ask, Door, Draw, HABITS, Habit};
use crate::serve::Addresses;

/// An answer that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Everybody who asks.
pub(super) struct Clients {
    client: Client<HttpConnector, Full<Bytes>>,
    gateway: Option<Place>,
    http: Option<Place>,
}

impl Clients {
    pub(super) fn new(open: &Addresses) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let place = |door| open.of(door).cloned();
        Self { client, gateway: place("gateway"), http: place("http") }
    }

    /// Asks for ever.
    pub(super) async fn ask(&self) {
        let all = HABITS.iter().zip(1..).map(|(habit, seed)| self.follow(*habit, Draw(seed)));
        join_all(all).await;
    }

    async fn follow(&self, habit: Habit, mut draw: Draw) {
        let mut next = tokio::time::interval(habit.every);
        // Who was held up does not catch up: the rate has an end.
        next.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            next.tick().await;
            let asks = (0..habit.at_once).map(|_| self.send((habit.ask)(&mut draw)));
            join_all(asks).await;
        }
    }

    /// Sends one; what is answered, or whether anything is, the dashboard shows.
    async fn send(&self, ask: Ask) {
        let Some(request) = self.request(ask) else { return };
        let answered = async {
            let response = self.client.request(request).await.ok()?;
            response.into_body().collect().await.ok()
        };
        let _ = tokio::time::timeout(PATIENCE, answered).await;
    }

    fn request(&self, ask: Ask) -> Option<Request<Full<Bytes>>> {
        let Ask { door, method, path, api_key, ip } = ask;
        match door {
            Door::Gateway => {
                let url = format!("http://{}{path}", self.gateway.as_ref()?);
                let request = Request::builder().method(method).uri(url);
                let request = request.header("x-forwarded-for", ip);
                let request = match api_key {
                    Some(key) => request.header("x-api-key", key),
                    None => request,
                };
                request.body(Full::default()).ok()
            }
            Door::Http => {
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
