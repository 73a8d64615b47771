//! `tidegate top`: the live view of the dashboard, in a terminal.
//!
//! `feed` receives ticks from the server (`api_types`). `history` keeps the differences between
//! them (`tick_delta`), from which `snapshot` computes the numbers to show. `view` holds the user's
//! settings, such as sorting and filter. `draw` draws snapshot and view, and `screen` runs the
//! terminal. Without a terminal, one snapshot is printed as text (`plain_text`) or JSON (`json`).

mod api_types;
mod app;
mod cell_text;
mod draw;
mod feed;
#[cfg(test)]
mod fixtures;
pub(super) mod formatting;
mod history;
mod json;
mod plain_text;
mod screen;
mod snapshot;
mod tick_delta;
mod view;

use std::io::{self, IsTerminal as _};

use super::api::{AdminClient, block_on};
use crate::cli::TopArgs;
use crate::http_client::SseStream;
use history::TickHistory;
use snapshot::TopSnapshot;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output;

/// Shows the live view until the user quits, or prints one snapshot.
///
/// # Errors
/// If the API returns an error, or the terminal cannot be used.
pub(crate) fn run(args: &TopArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::new(&args.admin_api)?;
    let is_interactive = io::stdout().is_terminal() && io::stdin().is_terminal();
    block_on(async {
        // Connect before switching the screen, so that an error stays visible.
        let events = feed::open_stream(&api).await?;
        match is_interactive && !args.once && !api.json {
            true => screen::run_screen(api, events).await?,
            false => print_once(&api, events).await?,
        }
        Ok(CommandOutcome::Success)
    })
}

/// Prints one snapshot, after the second tick: rates need two.
async fn print_once(api: &AdminClient, mut events: SseStream) -> Result<(), CommandError> {
    let mut history = TickHistory::default();
    while !history.has_rates() {
        let tick = feed::next_tick(&mut events).await;
        history
            .push_tick(*tick.map_err(|why| CommandError::Failed(format!("{}: {why}", api.url())))?);
    }
    history.set_details(feed::fetch_details(api).await?);
    let Some(snapshot) = TopSnapshot::from_history(&history) else { return Ok(()) };
    match api.json {
        true => output::print_json(&json::to_json(&snapshot))?,
        false => output::print_text(&plain_text::render_text(&snapshot))?,
    }
    Ok(())
}
