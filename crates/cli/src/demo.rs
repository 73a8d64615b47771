//! `tidegate demo`: a server on example rules, an API behind it and made-up clients before it, so that there
//! is something to look at within a minute. All on this machine, at a few hundred requests a second.
//!
//! The server is the one of `serve`, in this process; upstream and clients have a thread beside it and
//! know nothing of it but its addresses.

mod client_profiles;
mod clients;
mod temp_folder;
mod upstream;

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::oneshot::{self, Receiver};
use tokio_util::sync::CancellationToken;

use crate::cli::DemoArgs;
use clients::DemoClients;
use temp_folder::TempFolder;
use tidegate_server::CommandOutcome;
use tidegate_server::args::{RuleSourceArgs, ServeArgs};
use tidegate_server::config::{ListenSpec, LogLevel, PartialSettings, UpstreamUrl};
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, BOLD, DIM};
use tidegate_server::serve::{self, ListenerAddresses};

const RULES: &str = include_str!("../assets/demo.yaml");

/// Runs the demo until it is told to stop, or its time is over.
///
/// # Errors
/// When there is no folder for its rules, or the server cannot run.
pub(crate) fn run(args: &DemoArgs) -> Result<CommandOutcome, CommandError> {
    let folder = TempFolder::create()?;
    let rules = folder.write("demo.yaml", RULES)?;
    // So that rules can be changed in the dashboard.
    let database = format!("sqlite:{}", folder.path("demo.db").display());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let upstream = format!("http://{}", listener.local_addr()?).parse::<UpstreamUrl>();
    let upstream = upstream.map_err(|wrong| CommandError::Failed(wrong.to_string()))?;
    let (tell, told) = oneshot::channel();
    let over = CancellationToken::new();
    let lasts = args.duration.map(|lasts| Duration::from_micros(lasts.get()));
    let company = DemoTraffic { listener, addresses: told, duration: lasts, stop: over.clone() };
    let company = thread::Builder::new().name("demo".to_owned()).spawn(|| company.run())?;
    let rules = RuleSourceArgs {
        config: Some(rules),
        limits: Vec::new(),
        declared_facts: Vec::new(),
        api_key_header: None,
    };
    let outcome = serve::run(
        ServeArgs { rules, settings: demo_settings(args, upstream, database) },
        Some(tell),
    );
    over.cancel();
    let kept = company.join().unwrap_or_else(|_| {
        Err(CommandError::Failed("the clients of the demo ended by themselves".to_owned()))
    });
    outcome.and_then(|outcome| kept.map(|()| outcome))
}

/// The demo also runs beside a server: its listeners take free ports where the usual ones are taken.
fn demo_settings(args: &DemoArgs, upstream: UpstreamUrl, database: String) -> PartialSettings {
    let mut settings = PartialSettings::default();
    settings.gateway.upstream = Some(upstream);
    settings.gateway.gateway = Some(ListenSpec::PreferredPort(8080));
    settings.http = Some(ListenSpec::PreferredPort(8081));
    settings.grpc.grpc = Some(ListenSpec::PreferredPort(8082));
    settings.resp.resp = Some(ListenSpec::PreferredPort(8083));
    settings.admin.admin = Some(args.admin.clone().unwrap_or(ListenSpec::PreferredPort(8084)));
    settings.admin.rules_db = Some(database);
    settings.log_level = Some(LogLevel::Error);
    settings
}

/// The API behind the server and the clients before it.
struct DemoTraffic {
    listener: TcpListener,
    addresses: Receiver<ListenerAddresses>,
    duration: Option<Duration>,
    stop: CancellationToken,
}

impl DemoTraffic {
    fn run(self) -> Result<(), CommandError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let upstream = upstream::serve(self.listener, self.stop.clone())?;
            // A server that could not start says why itself.
            if let Ok(open) = self.addresses.await {
                tokio::select! {
                    () = run_clients(&open, self.duration) => {}
                    () = self.stop.cancelled() => {}
                }
            }
            self.stop.cancelled().await;
            let _ = upstream.await;
            Ok(())
        })
    }
}

/// Says where to look, and asks the server until the time is over.
async fn run_clients(open: &ListenerAddresses, lasts: Option<Duration>) {
    // Whoever started us may not listen.
    let _ = output::print_text(&banner_text(open, lasts));
    let clients = DemoClients::new(open);
    let time = async {
        match lasts {
            Some(lasts) => tokio::time::sleep(lasts).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = clients.run() => {}
        () = time => {
            // As if somebody had asked it to, so that it ends in order.
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
}

fn banner_text(open: &ListenerAddresses, lasts: Option<Duration>) -> String {
    let place = |door| open.get(door).map_or_else(|| "off".to_owned(), ToString::to_string);
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
