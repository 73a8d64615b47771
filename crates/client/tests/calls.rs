//! Single calls in virtual time: retries, deadlines, queues, keys and shared quotas.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tidegate_client::{
    CallDeadline, ClientError, ClientLayer, ClientService, CloneBodies, QuotaAnswer, QuotaFuture,
    RetryPolicy, SharedQuota, SharedQuotaError,
};
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};

type TextBody = Full<Bytes>;
type TextServer = BoxCloneSyncService<Request<TextBody>, Response<TextBody>, Infallible>;
type TestClient = ClientService<TextServer, CloneBodies>;
type TestResult = Result<Response<TextBody>, ClientError<Infallible>>;

/// The paths of the requests that a server got, and when.
type RequestLog = Arc<Mutex<Vec<(String, u64)>>>;

/// A server that answers each request by a function of its index, after 10 ms.
fn server<F>(respond: F) -> (TextServer, RequestLog)
where
    F: Fn(usize) -> http::response::Builder + Clone + Send + Sync + 'static,
{
    let log = RequestLog::default();
    let (started, entries) = (Instant::now(), Arc::clone(&log));
    let service = service_fn(move |request: Request<TextBody>| {
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap();
        let mut entries = entries.lock().unwrap();
        let index = entries.len();
        entries.push((request.uri().path().to_owned(), millis));
        let response = respond(index).body(TextBody::default()).unwrap();
        async move {
            sleep(Duration::from_millis(10)).await;
            Ok(response)
        }
    });
    (BoxCloneSyncService::new(service), log)
}

fn status(status: u16) -> http::response::Builder {
    Response::builder().status(status)
}

/// Refuses the first request with this header, and accepts all others.
fn refuse_first(
    name: &'static str,
    value: &'static str,
) -> impl Fn(usize) -> http::response::Builder + Clone + Send + Sync + 'static {
    move |index| if index == 0 { status(429).header(name, value) } else { status(200) }
}

fn client(server: &TextServer, layer: ClientLayer) -> TestClient {
    layer.seed(7).clone_bodies().layer(server.clone())
}

fn request(method: &str, path: &str) -> Request<TextBody> {
    let uri = format!("http://host.example{path}");
    Request::builder().method(method).uri(uri).body(TextBody::default()).unwrap()
}

fn send(
    client: &TestClient,
    request: Request<TextBody>,
) -> impl Future<Output = TestResult> + use<> {
    client.clone().oneshot(request)
}

fn with_deadline(mut request: Request<TextBody>, timeout: Duration) -> Request<TextBody> {
    request.extensions_mut().insert(CallDeadline::after(timeout));
    request
}

fn times(log: &RequestLog) -> Vec<u64> {
    log.lock().unwrap().iter().map(|(_, millis)| *millis).collect()
}

#[tokio::test(start_paused = true)]
async fn refused_call_is_retried_after_its_wait() {
    let (server, log) = server(refuse_first("retry-after", "3"));
    let client = client(&server, ClientLayer::new());
    assert_eq!(send(&client, request("GET", "/")).await.unwrap().status(), 200);
    let times = times(&log);
    // Up to 100 ms of jitter.
    assert!(times.len() == 2 && (3_010..=3_120).contains(&times[1]), "{times:?}");
    let stats = client.stats();
    assert_eq!((stats.sent, stats.refused, stats.retried, stats.gave_up), (2, 1, 1, 0));
    assert_eq!(stats.paced, 0, "the jitter is longer than the server's wait");
}

#[tokio::test(start_paused = true)]
async fn same_seed_repeats_the_jitter() {
    let retry_times = async |seed| {
        let (server, log) = server(|_| status(502));
        let client = ClientLayer::new().seed(seed).clone_bodies().layer(server);
        client.oneshot(request("GET", "/")).await.unwrap();
        times(&log)
    };
    let first = retry_times(1).await;
    assert_eq!(first.len(), 4);
    assert_eq!(first, retry_times(1).await);
    assert_ne!(first, retry_times(2).await);
}

#[tokio::test(start_paused = true)]
async fn wait_beyond_ceiling_returns_the_refusal_at_once() {
    let (server, log) = server(refuse_first("retry-after", "3600"));
    let client = client(&server, ClientLayer::new());
    let refusal = send(&client, request("GET", "/")).await.unwrap();
    assert_eq!((refusal.status().as_u16(), times(&log)), (429, vec![0]));
    assert_eq!(refusal.headers()["retry-after"], "3600");
    // The next call finds out after the ceiling.
    assert_eq!(send(&client, request("GET", "/")).await.unwrap().status(), 200);
    assert_eq!(times(&log), [0, 20_010]);
}

#[tokio::test(start_paused = true)]
async fn only_idempotent_calls_are_retried_unless_told() {
    let calls = async |request: Request<TextBody>, layer: ClientLayer| {
        let (server, log) = server(refuse_first("retry-after-ms", "1"));
        send(&client(&server, layer), request).await.unwrap();
        times(&log).len()
    };
    let plain = ClientLayer::new;
    assert_eq!(calls(request("PUT", "/"), plain()).await, 2);
    assert_eq!(calls(request("POST", "/"), plain()).await, 1);
    let mut keyed = request("POST", "/");
    keyed.headers_mut().insert("idempotency-key", "1".parse().unwrap());
    assert_eq!(calls(keyed, plain()).await, 2);
    let told = RetryPolicy::default().retry_if(|call| call.uri.path() == "/search");
    assert_eq!(calls(request("POST", "/search"), plain().retry(told.clone())).await, 2);
    assert_eq!(calls(request("PUT", "/"), plain().retry(told)).await, 1);
    assert_eq!(calls(request("GET", "/"), plain().retry(RetryPolicy::never())).await, 1);
}

#[tokio::test(start_paused = true)]
async fn body_that_cannot_be_cloned_is_sent_once() {
    let (server, log) = server(|_| status(502));
    let calls = || times(&log).len();
    let never = ClientLayer::new().layer(server.clone());
    assert_eq!(never.oneshot(request("GET", "/")).await.unwrap().status(), 502);
    assert_eq!(calls(), 1);
    let layer = ClientLayer::new();
    let streams = layer.clone().clone_bodies_with(|_: &TextBody| None).layer(server.clone());
    assert_eq!(streams.oneshot(request("GET", "/")).await.unwrap().status(), 502);
    assert_eq!(calls(), 2);
    let cloned = layer.clone_bodies_with(|body: &TextBody| Some(body.clone())).layer(server);
    assert_eq!(cloned.oneshot(request("GET", "/")).await.unwrap().status(), 502);
    assert_eq!(calls(), 6, "three retries");
}

#[tokio::test(start_paused = true)]
async fn retries_stay_within_their_budget() {
    let (server, log) = server(|_| status(502));
    let policy = RetryPolicy::default().max_retries(5);
    let client = client(&server, ClientLayer::new().retry(policy));
    for _ in 0..200 {
        assert_eq!(send(&client, request("GET", "/")).await.unwrap().status(), 502);
    }
    assert_eq!((times(&log).len(), client.stats().retried), (250, 50), "10 and 20 %");
}

#[tokio::test(start_paused = true)]
async fn failed_connection_is_retried() {
    let attempts = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&attempts);
    let server = service_fn(move |_: Request<TextBody>| {
        let mut attempts = counted.lock().unwrap();
        *attempts += 1;
        let result =
            if *attempts < 3 { Err("refused") } else { Ok(Response::new(TextBody::default())) };
        async move { result }
    });
    let client = ClientLayer::new().clone_bodies().layer(server);
    client.clone().oneshot(request("GET", "/")).await.unwrap();
    assert_eq!((*attempts.lock().unwrap(), client.stats().retried), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn deadline_before_turn_fails_at_once_unsent() {
    let (server, log) = server(refuse_first("retry-after", "10"));
    let client = client(&server, ClientLayer::new().retry(RetryPolicy::never()));
    send(&client, request("GET", "/")).await.unwrap();
    let started = Instant::now();
    let late = with_deadline(request("GET", "/"), Duration::from_secs(5));
    let Err(ClientError::DeadlineTooShort { needed, available }) = send(&client, late).await else {
        panic!("the call has no chance")
    };
    assert_eq!((needed.as_secs(), available.as_secs()), (10, 5));
    assert_eq!((started.elapsed(), times(&log).len()), (Duration::ZERO, 1));
    assert_eq!(client.stats().gave_up, 1);
}

#[tokio::test(start_paused = true)]
async fn deadline_before_retry_returns_the_refusal() {
    let (server, log) = server(refuse_first("retry-after", "10"));
    let client = client(&server, ClientLayer::new());
    let short = with_deadline(request("GET", "/"), Duration::from_secs(5));
    assert_eq!(send(&client, short).await.unwrap().status(), 429);
    assert_eq!(times(&log), [0]);
}

#[tokio::test(start_paused = true)]
async fn refusal_is_returned_if_no_retry_gets_a_turn() {
    let (server, log) = server(|_| status(429));
    let client = client(&server, ClientLayer::new());
    let short = with_deadline(request("GET", "/"), Duration::from_millis(500));
    // The refusal cuts the rate to less than one call a second.
    assert_eq!(send(&client, short).await.unwrap().status(), 429);
    assert_eq!((times(&log), client.stats().gave_up), (vec![0], 0));
}

#[tokio::test(start_paused = true)]
async fn refusal_fails_waiting_calls_without_a_chance() {
    // Nine seconds for the rest of the window; the second response closes it for 15 seconds more.
    let (server, _) = server(|index| match index {
        0 => status(200).header("ratelimit", r#""x";r=2;t=8"#),
        1 => status(429).header("retry-after", "15"),
        _ => status(200),
    });
    let client = client(&server, ClientLayer::new().retry(RetryPolicy::never()));
    send(&client, request("GET", "/")).await.unwrap();
    let mut waiting = Vec::new();
    // The second has more time, so that it waits in front of the third.
    for timeout_secs in [12, 60, 12] {
        let call = with_deadline(request("GET", "/"), Duration::from_secs(timeout_secs));
        let call = send(&client, call);
        waiting.push(tokio::spawn(async move { (call.await, Instant::now()) }));
        tokio::task::yield_now().await;
    }
    let mut outcomes = Vec::new();
    for call in waiting {
        outcomes.push(call.await.unwrap());
    }
    let [(first, answered), (second, sent), (third, failed)] = &outcomes[..] else {
        panic!("three calls")
    };
    let statuses = [first, second].map(|result| result.as_ref().unwrap().status().as_u16());
    assert_eq!(statuses, [429, 200]);
    assert!(matches!(third, Err(ClientError::DeadlineTooShort { .. })), "{third:?}");
    assert!(failed == answered && failed < sent, "it fails as soon as the refusal is known");
}

#[tokio::test(start_paused = true)]
async fn wait_beyond_ceiling_is_never_slept() {
    let (server, log) = server(refuse_first("retry-after", "60"));
    let client = client(&server, ClientLayer::new().max_wait(Duration::from_secs(7_200)));
    assert_eq!(send(&client, request("GET", "/")).await.unwrap().status(), 429);
    assert_eq!(times(&log), [0]);
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_are_sent_in_order() {
    let (server, log) = server(|index| match index {
        0 => status(200).header("ratelimit", r#""x";r=10;t=9"#),
        _ => status(200),
    });
    let client = client(&server, ClientLayer::new());
    send(&client, request("GET", "/")).await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..10 {
        calls.spawn(send(&client, request("GET", &format!("/{index}"))));
        tokio::task::yield_now().await;
    }
    while let Some(result) = calls.join_next().await {
        result.unwrap().unwrap();
    }
    let paths: Vec<String> = log.lock().unwrap().iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(paths[1..], (0..10).map(|index| format!("/{index}")).collect::<Vec<_>>());
    let times = times(&log);
    assert!(times[10] > 5_000, "spread over the window: {times:?}");
    assert!(client.stats().paced >= 9);
}

#[tokio::test(start_paused = true)]
async fn full_queue_refuses_more_calls() {
    let (server, _) = server(refuse_first("retry-after", "5"));
    let layer = ClientLayer::new().retry(RetryPolicy::never()).max_waiting(3);
    let client = client(&server, layer);
    send(&client, request("GET", "/")).await.unwrap();
    let waiting: Vec<_> =
        (0..3).map(|_| tokio::spawn(send(&client, request("GET", "/")))).collect();
    tokio::task::yield_now().await;
    let error = send(&client, request("GET", "/")).await.unwrap_err();
    assert!(matches!(error, ClientError::QueueFull { waiting: 3 }), "{error}");
    assert_eq!(client.stats().keys[0].waiting, 3);
    for call in waiting {
        call.await.unwrap().unwrap();
    }
    assert_eq!(client.stats().keys[0].waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_call_leaves_the_queue() {
    let (server, log) = server(refuse_first("retry-after", "5"));
    let client = client(&server, ClientLayer::new().retry(RetryPolicy::never()));
    send(&client, request("GET", "/")).await.unwrap();
    let dropped = tokio::spawn(send(&client, request("GET", "/dropped")));
    tokio::task::yield_now().await;
    let behind = tokio::spawn(send(&client, request("GET", "/behind")));
    tokio::task::yield_now().await;
    dropped.abort();
    behind.await.unwrap().unwrap();
    assert_eq!(log.lock().unwrap()[1], ("/behind".to_owned(), 5_010));
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_own_budget() {
    let (server, log) = server(|index| match index {
        0 => status(429).header("retry-after", "9"),
        _ => status(200),
    });
    let layer = ClientLayer::new().retry(RetryPolicy::never());
    let by_host = client(&server, layer.clone());
    send(&by_host, request("GET", "/")).await.unwrap();
    let mut other = request("GET", "/");
    *other.uri_mut() = "http://other.example/".parse().unwrap();
    send(&by_host, other).await.unwrap();
    assert_eq!(times(&log), [0, 10], "the other host refused nothing");
    let keys: Vec<_> = by_host.stats().keys.into_iter().map(|key| key.key).collect();
    assert_eq!(keys, ["host.example", "other.example"]);
    let by_path = client(&server, layer.key_by(|request| request.uri.path().to_owned()));
    send(&by_path, request("GET", "/a")).await.unwrap();
    send(&by_path, request("GET", "/b")).await.unwrap();
    assert_eq!(by_path.stats().keys.len(), 2);
}

/// A shared quota that answers from a list, and then grants everything.
struct ScriptedQuota(Mutex<Vec<Result<QuotaAnswer, SharedQuotaError>>>);

impl SharedQuota for ScriptedQuota {
    fn acquire<'a>(&'a self, key: &'a str, cost: u32) -> QuotaFuture<'a> {
        assert_eq!((key, cost), ("host.example", 3));
        let answer = self.0.lock().unwrap().pop().unwrap_or(Ok(QuotaAnswer::granted()));
        Box::pin(async move { answer })
    }
}

fn scripted(answer: Result<QuotaAnswer, SharedQuotaError>) -> Arc<ScriptedQuota> {
    Arc::new(ScriptedQuota(Mutex::new(vec![answer])))
}

#[tokio::test(start_paused = true)]
async fn shared_quota_delays_and_refuses_calls() {
    let outcome = async |answer: QuotaAnswer| {
        let (server, log) = server(|_| status(200));
        let layer = ClientLayer::new().cost_by(|_| 3).shared_quota(scripted(Ok(answer)));
        let result = send(&client(&server, layer), request("GET", "/")).await;
        (result.map(|response| response.status().as_u16()), times(&log))
    };
    let granted = async |answer| {
        let (result, times) = outcome(answer).await;
        (result.unwrap(), times)
    };
    let secs = Duration::from_secs;
    assert_eq!(granted(QuotaAnswer::granted()).await, (200, vec![0]));
    assert_eq!(granted(QuotaAnswer::Granted { delay: secs(2) }).await, (200, vec![2_000]));
    assert_eq!(granted(QuotaAnswer::RetryAfter(secs(4))).await, (200, vec![4_000]));
    let (never, times) = outcome(QuotaAnswer::NeverFits).await;
    let expected = SharedQuotaError::CostTooHigh { cost: 3 };
    assert!(matches!(never, Err(ClientError::Quota(error)) if error == expected));
    assert_eq!(times, []);
    let (late, times) = outcome(QuotaAnswer::Granted { delay: secs(60) }).await;
    assert!(matches!(late, Err(ClientError::DeadlineTooShort { .. })));
    assert_eq!(times, []);
}

#[tokio::test(start_paused = true)]
async fn unavailable_quota_fails_open_unless_strict() {
    let (server, log) = server(|_| status(200));
    let error = SharedQuotaError::Unavailable("down".to_owned());
    let layer = ClientLayer::new().cost_by(|_| 3);
    let open = client(&server, layer.clone().shared_quota(scripted(Err(error.clone()))));
    send(&open, request("GET", "/")).await.unwrap();
    assert_eq!((open.stats().quota_failures, times(&log).len()), (1, 1));
    let strict = client(&server, layer.strict_shared_quota(scripted(Err(error.clone()))));
    let failed = send(&strict, request("GET", "/")).await;
    assert!(matches!(failed, Err(ClientError::Quota(found)) if found == error));
    assert_eq!((strict.stats().gave_up, times(&log).len()), (1, 1));
}
