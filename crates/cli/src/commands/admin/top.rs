//! `tidegate top`: what the dashboard shows live, in a terminal.
//!
//! What a server tells (`tick`) is read (`feed`), kept (`history`, `step`) and worked out to what there is to see
//! (`picture`); how a person looks at it (`view`) is apart from how it is drawn (`draw`), and that from the terminal
//! (`screen`). Where there is none, one picture is told as text (`plain`) or JSON.

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

/// Shows what goes on: until the person leaves, or once.
///
/// # Errors
/// When nobody tells, or the terminal cannot be used.
pub(crate) fn run(args: &TopArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::new(&args.admin_api)?;
    let watched = io::stdout().is_terminal() && io::stdin().is_terminal();
    block_on(async {
        // Whoever cannot listen hears why before the screen is another.
        let events = feed::open_stream(&api).await?;
        match watched && !args.once && !api.json {
            true => screen::run_screen(api, events).await?,
            false => print_once(&api, events).await?,
        }
        Ok(CommandOutcome::Success)
    })
}

/// Tells one picture: that after the second tick, because one alone has no rates.
async fn print_once(api: &AdminClient, mut events: SseStream) -> Result<(), CommandError> {
    let mut history = TickHistory::default();
    while !history.has_rates() {
        let tick = feed::next_tick(&mut events).await;
        history
            .push_tick(*tick.map_err(|why| CommandError::Failed(format!("{}: {why}", api.url())))?);
    }
    history.set_details(feed::fetch_details(api).await?);
    let Some(picture) = TopSnapshot::from_history(&history) else { return Ok(()) };
    match api.json {
        true => output::print_json(&json::to_json(&picture))?,
        false => output::print_text(&plain_text::render_text(&picture))?,
    }
    Ok(())
}
