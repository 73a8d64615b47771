//! A door on a free port, and a caller that says exactly what it is told to say.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::key::Secret;
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_edge::Status;
use tidegate_edge::http::{Door, Settings};
use tidegate_edge::listen::{self, serve};
use tidegate_engine::Limiter;
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::{Document, RuleSet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Nothing here takes long; what does is a failure. (An hour of paused time is no time at all.)
const CAP: Duration = Duration::from_secs(200);

pub(crate) type Store = MemoryStore<ManualClock>;

/// Ten requests at once for everybody, and none back while the clock stands.
pub(crate) const TEN: &str = "rules: [{ id: ten, key_by: global, limit: 10/h }]";

pub(crate) struct House {
    pub(crate) address: SocketAddr,
    pub(crate) clock: ManualClock,
    pub(crate) door: Arc<Door<Store>>,
    pub(crate) status: Arc<Status>,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) served: JoinHandle<()>,
}

impl House {
    pub(crate) async fn open(rules: &str) -> Self {
        Self::open_with(rules, Settings::default()).await
    }

    pub(crate) async fn open_with(rules: &str, settings: Settings) -> Self {
        Self::open_at(rules, settings, listen::Settings::default()).await
    }

    pub(crate) async fn open_at(rules: &str, settings: Settings, listen: listen::Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, ..Self::open_on(listener, rules, settings, listen) }
    }

    /// Without an address of its own, for whoever knows where the listener is.
    pub(crate) fn open_on(
        listener: impl Into<listen::Listener> + Send + 'static,
        rules: &str,
        settings: Settings,
        listen: listen::Settings,
    ) -> Self {
        let document = Document::parse("rules.yaml", rules).unwrap();
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000));
        let status = Arc::new(Status::new());
        status.rules_in_force(rules.version());
        let store = MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES);
        let limiter = Arc::new(Limiter::new(store, rules));
        let door = Arc::new(Door::new(limiter, Arc::clone(&status), settings));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let told = Arc::clone(&status);
        let served = tokio::spawn(serve(listener, Arc::clone(&door), listen, told, stopped));
        Self { address, clock, door, status, stop, served }
    }

    pub(crate) async fn caller(&self) -> Caller {
        Caller::at(self.address).await
    }

    /// How many are left of the rule `ten`.
    pub(crate) async fn left(&self) -> u64 {
        let answer = self.caller().await.post("/v1/peek", r#"{"facts":{}}"#).await;
        answer.json()["remaining"].as_u64().unwrap()
    }
}

pub(crate) struct Caller {
    pub(crate) tcp: TcpStream,
    read: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Caller {
    pub(crate) async fn at(address: SocketAddr) -> Self {
        Self { tcp: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    /// What comes up to and with a mark, as it comes.
    pub(crate) async fn raw_until(&mut self, mark: &[u8]) -> String {
        let end = loop {
            match self.read.windows(mark.len()).position(|window| window == mark) {
                Some(at) => break at + mark.len(),
                None => self.more().await.expect("more"),
            }
        };
        String::from_utf8(self.read.drain(..end).collect()).unwrap()
    }

    /// What comes up to and with a mark, or until the connection is closed.
    pub(crate) async fn raw_to_mark_or_end(&mut self, mark: &[u8]) -> String {
        while !self.read.windows(mark.len()).any(|window| window == mark) {
            if self.more().await.is_none() {
                break;
            }
        }
        String::from_utf8(std::mem::take(&mut self.read)).unwrap()
    }

    /// Whatever comes until the connection is closed.
    pub(crate) async fn raw_to_end(&mut self) -> String {
        while self.more().await.is_some() {}
        String::from_utf8(std::mem::take(&mut self.read)).unwrap()
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, body.as_bytes()).await
    }

    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.send(&request(method, path, body)).await;
        self.answer_to(method).await.unwrap()
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.tcp.write_all(bytes).await.unwrap();
    }

    /// The next answer; none if the connection is closed or reset before it.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        self.answer_to("POST").await
    }

    async fn answer_to(&mut self, method: &str) -> Option<Answer> {
        let end = loop {
            match self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.more().await?,
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut answer = Answer { status, headers, body: String::new() };
        let length: usize = answer.header("content-length").map_or(0, |text| text.parse().unwrap());
        let length = if method == "HEAD" { 0 } else { length };
        while self.read.len() < length {
            self.more().await?;
        }
        answer.body = String::from_utf8(self.read.drain(..length).collect()).unwrap();
        Some(answer)
    }

    /// Whether the other side closes now, with nothing said any more.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.read.is_empty() && self.more().await.is_none()
    }

    async fn more(&mut self) -> Option<()> {
        let mut space = [0; 4096];
        let read = tokio::time::timeout(CAP, self.tcp.read(&mut space)).await;
        match read.expect("it neither answers nor closes") {
            Ok(0) | Err(_) => None,
            Ok(count) => {
                self.read.extend_from_slice(&space[..count]);
                Some(())
            }
        }
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Everything but the date.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.status);
        for (name, value) in self.headers.iter().filter(|(name, _)| name != "date") {
            writeln!(text, "{name}: {value}").unwrap();
        }
        if !self.body.is_empty() {
            writeln!(text, "{}", self.body).unwrap();
        }
        text
    }
}

pub(crate) fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: tidegate\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}
