//! `tidegate top`: what the dashboard shows live, in a terminal.
//!
//! What a server tells (`tick`) is read (`feed`), kept (`history`, `step`) and worked out to what there is to see
//! (`picture`); how a person looks at it (`view`) is apart from how it is drawn (`draw`), and that from the terminal
//! (`screen`). Where there is none, one picture is told as text (`plain`) or JSON.

mod board;
mod draw;
mod feed;
mod fit;
mod history;
mod json;
mod picture;
mod plain;
#[cfg(test)]
mod sample;
mod screen;
mod step;
mod tick;
mod view;
pub(super) mod words;

use std::io::{self, IsTerminal as _};

use super::api::{Api, wait};
use crate::Outcome;
use crate::cli::TopArgs;
use crate::client::Events;
use crate::failure::Failure;
use crate::output;
use history::History;
use picture::Picture;

/// Shows what goes on: until the person leaves, or once.
///
/// # Errors
/// When nobody tells, or the terminal cannot be used.
pub(crate) fn run(args: &TopArgs) -> Result<Outcome, Failure> {
    let api = Api::new(&args.office)?;
    let watched = io::stdout().is_terminal() && io::stdin().is_terminal();
    wait(async {
        // Whoever cannot listen hears why before the screen is another.
        let events = feed::open(&api).await?;
        match watched && !args.once && !api.json {
            true => screen::show(api, events).await?,
            false => once(&api, events).await?,
        }
        Ok(Outcome::Well)
    })
}

/// Tells one picture: that after the second tick, because one alone has no rates.
async fn once(api: &Api, mut events: Events) -> Result<(), Failure> {
    let mut history = History::default();
    while !history.is_moving() {
        let tick = feed::tick(&mut events).await;
        history.tick(*tick.map_err(|why| Failure::CouldNot(format!("{}: {why}", api.url())))?);
    }
    history.asked(feed::ask(api).await?);
    let Some(picture) = Picture::of(&history) else { return Ok(()) };
    match api.json {
        true => output::json(&json::of(&picture))?,
        false => output::text(&plain::text(&picture))?,
    }
    Ok(())
}
