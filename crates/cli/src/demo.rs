//! `tidegate demo`: a server with example rules, an upstream API and simulated clients, to show
//! Tidegate at work within a minute. Everything runs on this machine, at a few hundred requests per
//! second.
//!
//! The server is that of `serve`, in this process. Upstream and clients run on a separate thread
//! and know only the server's addresses.

mod client_profiles;
mod clients;
mod temp_folder;
mod upstream;

use std::io::IsTerminal as _;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
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

/// Runs the demo until a signal stops it or its duration has elapsed.
///
/// # Errors
/// If the folder for the rules cannot be created, or the server cannot run.
pub(crate) fn run(args: &DemoArgs) -> Result<CommandOutcome, CommandError> {
    let folder = TempFolder::create()?;
    let rules = folder.write("demo.yaml", RULES)?;
    // Rules can be changed in the dashboard only if they are in a database.
    let database = format!("sqlite:{}", folder.path("demo.db").display());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let upstream = format!("http://{}", listener.local_addr()?).parse::<UpstreamUrl>();
    let upstream = upstream.map_err(|wrong| CommandError::Failed(wrong.to_string()))?;
    let (addresses_sender, addresses) = oneshot::channel();
    let stop = CancellationToken::new();
    let duration = args.duration.map(|duration| Duration::from_micros(duration.get()));
    let traffic = DemoTraffic { listener, addresses, duration, stop: stop.clone() };
    let traffic = thread::Builder::new().name("demo".to_owned()).spawn(|| traffic.run())?;
    let rules = RuleSourceArgs {
        config: Some(rules),
        limits: Vec::new(),
        declared_facts: Vec::new(),
        api_key_header: None,
        region: None,
    };
    let outcome = serve::run(
        ServeArgs { rules, settings: demo_settings(args, upstream, database) },
        Some(addresses_sender),
    );
    stop.cancel();
    let traffic = traffic.join().unwrap_or_else(|_| {
        Err(CommandError::Failed("the thread of the simulated clients panicked".to_owned()))
    });
    outcome.and_then(|outcome| traffic.map(|()| outcome))
}

/// The server's settings. Its listeners take free ports if the default ones are taken, so that the
/// demo can run next to a server.
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

/// The upstream API and the clients.
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
            // The channel closes if the server could not start; `serve` reports why.
            if let Ok(addresses) = self.addresses.await {
                tokio::select! {
                    () = run_clients(&addresses, self.duration) => {}
                    () = self.stop.cancelled() => {}
                }
            }
            self.stop.cancelled().await;
            let _ = upstream.await;
            Ok(())
        })
    }
}

/// Prints the addresses and sends requests until the duration has elapsed.
async fn run_clients(addresses: &ListenerAddresses, duration: Option<Duration>) {
    // The demo also runs if stdout is closed.
    let _ = output::print_text(&banner_text(addresses, duration));
    let clients = DemoClients::new(addresses);
    let end = async {
        tokio::select! {
            () = tokio::time::sleep(duration.unwrap_or(Duration::MAX)) => {}
            () = terminal_closed() => {}
        }
    };
    tokio::select! {
        () = clients.run() => {}
        () = end => {
            // The server handles SIGTERM with a graceful shutdown.
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
}

/// Completes when the terminal that the demo was started in is closed. The server itself handles
/// SIGHUP as a reload.
async fn terminal_closed() {
    match signal(SignalKind::hangup()) {
        Ok(mut hangup) if std::io::stdin().is_terminal() => _ = hangup.recv().await,
        _ => std::future::pending().await,
    }
}

fn banner_text(addresses: &ListenerAddresses, duration: Option<Duration>) -> String {
    let address =
        |listener| addresses.get(listener).map_or_else(|| "off".to_owned(), ToString::to_string);
    let end = match duration {
        Some(duration) => format!("The demo ends after {} s, or with Ctrl-C.", duration.as_secs()),
        None => "The demo runs until Ctrl-C.".to_owned(),
    };
    format!(
        "\n{BOLD}Tidegate is running, with example rules and simulated clients.{BOLD:#}\n\n  \
         dashboard   {BOLD}http://{admin}/{BOLD:#}\n  \
         gateway     curl -i http://{gateway}/api/items/7 -H 'x-api-key: you'\n  \
         decisions   curl http://{http}/v1/check -d '{{\"facts\":{{\"api_key\":\"you\",\
         \"method\":\"POST\",\"path\":\"/api/orders\"}}}}'\n  \
         metrics     curl http://{admin}/metrics\n\n\
         {DIM}Everything runs on this machine; all data is deleted at the end. {end}{DIM:#}\n",
        admin = address("admin"),
        gateway = address("gateway"),
        http = address("http"),
    )
}
