//! `tidegate demo`: a server on example rules, an API behind it and made-up clients before it, so that there
//! is something to look at within a minute. All on this machine, at a few hundred requests a second.
//!
//! The server is the one of `serve`, in this process; upstream and clients have a thread beside it and
//! know nothing of it but its addresses.

mod clients;
mod folder;
mod habits;
mod upstream;

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::oneshot::{self, Receiver};
use tokio_util::sync::CancellationToken;

use crate::Outcome;
use crate::cli::{DemoArgs, RulesArgs, ServeArgs};
use crate::config::{
    AdminLayer, GatewayLayer, GrpcLayer, Layer, Listen, LogLevel, RespLayer, UpstreamAt,
};
use crate::failure::Failure;
use crate::output::{self, BOLD, DIM};
use crate::serve::{self, Addresses};
use clients::Clients;
use folder::Folder;

const RULES: &str = include_str!("../assets/demo.yaml");

/// Runs the demo until it is told to stop, or its time is over.
///
/// # Errors
/// When there is no folder for its rules, or the server cannot run.
pub(crate) fn run(args: &DemoArgs) -> Result<Outcome, Failure> {
    let folder = Folder::make()?;
    let rules = folder.write("demo.yaml", RULES)?;
    // So that rules can be changed in the dashboard.
    let database = format!("sqlite:{}", folder.path("demo.db").display());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let upstream = format!("http://{}", listener.local_addr()?).parse::<UpstreamAt>();
    let upstream = upstream.map_err(|wrong| Failure::CouldNot(wrong.to_string()))?;
    let (tell, told) = oneshot::channel();
    let over = CancellationToken::new();
    let lasts = args.lasts.map(|lasts| Duration::from_micros(lasts.get()));
    let company = Company { listener, told, lasts, over: over.clone() };
    let company = thread::Builder::new().name("demo".to_owned()).spawn(|| company.run())?;
    let rules = RulesArgs {
        config: Some(rules),
        limits: Vec::new(),
        brought: Vec::new(),
        api_key_header: None,
    };
    let outcome =
        serve::run(ServeArgs { rules, settings: settings(args, upstream, database) }, Some(tell));
    over.cancel();
    let kept = company.join().unwrap_or_else(|_| {
        Err(Failure::CouldNot("the clients of the demo ended by themselves".to_owned()))
    });
    outcome.and_then(|outcome| kept.map(|()| outcome))
}

/// The demo also runs beside a server: its listeners take free ports where the usual ones are taken.
fn settings(args: &DemoArgs, upstream: UpstreamAt, database: String) -> Layer {
    let gateway = Some(Listen::Preferred(8080));
    Layer {
        gateway: GatewayLayer { upstream: Some(upstream), gateway, ..GatewayLayer::default() },
        http: Some(Listen::Preferred(8081)),
        grpc: GrpcLayer { grpc: Some(Listen::Preferred(8082)), ..GrpcLayer::default() },
        resp: RespLayer { resp: Some(Listen::Preferred(8083)), ..RespLayer::default() },
        admin: AdminLayer {
            admin: Some(args.admin.clone().unwrap_or(Listen::Preferred(8084))),
            rules_db: Some(database),
            ..AdminLayer::default()
        },
        log_level: Some(LogLevel::Error),
        ..Layer::default()
    }
}

/// The API behind the server and the clients before it.
struct Company {
    listener: TcpListener,
    told: Receiver<Addresses>,
    lasts: Option<Duration>,
    over: CancellationToken,
}

impl Company {
    fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let upstream = upstream::serve(self.listener, self.over.clone())?;
            // A server that could not start says why itself.
            if let Ok(open) = self.told.await {
                tokio::select! {
                    () = keep(&open, self.lasts) => {}
                    () = self.over.cancelled() => {}
                }
            }
            self.over.cancelled().await;
            let _ = upstream.await;
            Ok(())
        })
    }
}

/// Says where to look, and asks the server until the time is over.
async fn keep(open: &Addresses, lasts: Option<Duration>) {
    // Whoever started us may not listen.
    let _ = output::text(&greeting(open, lasts));
    let clients = Clients::new(open);
    let time = async {
        match lasts {
            Some(lasts) => tokio::time::sleep(lasts).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = clients.ask() => {}
        () = time => {
            // As if somebody had asked it to, so that it ends in order.
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
}

fn greeting(open: &Addresses, lasts: Option<Duration>) -> String {
    let place = |door| open.of(door).map_or_else(|| "off".to_owned(), ToString::to_string);
    let ends = match lasts {
        Some(lasts) => format!("It ends after {} s, or with Ctrl-C.", lasts.as_secs()),
        None => "It runs until Ctrl-C.".to_owned(),
    };
    format!(
        "\n{BOLD}Tidegate is running, with example rules and made-up clients.{BOLD:#}\n\n  \
         dashboard   {BOLD}http://{admin}/{BOLD:#}\n  \
         gateway     curl -i http://{gateway}/api/items/7 -H 'x-api-key: you'\n  \
         decisions   curl http://{http}/v1/check -d '{{\"facts\":{{\"api_key\":\"you\",\
         \"method\":\"POST\",\"path\":\"/api/orders\"}}}}'\n  \
         metrics     curl http://{admin}/metrics\n\n\
         {DIM}Everything is on this machine, and forgotten when it ends. {ends}{DIM:#}\n",
        admin = place("admin"),
        gateway = place("gateway"),
        http = place("http"),
    )
}
