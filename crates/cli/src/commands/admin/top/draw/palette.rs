//! The colors and text styles of the screen. With NO_COLOR set, bands are distinguished by
//! characters instead of colors.

use ratatui::style::{Color, Modifier, Style};

use super::super::tick_delta::BANDS;

/// Whether to draw with colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Palette {
    Color,
    Plain,
}

/// The colors of [`BANDS`].
const BAND_COLORS: [Color; BANDS.len()] =
    [Color::Green, Color::Blue, Color::Yellow, Color::Red, Color::Magenta];

/// The characters of [`BANDS`] without colors.
const BAND_CHARS: [char; BANDS.len()] = [':', 's', 'w', '#', 'B'];

impl Palette {
    /// Reads NO_COLOR.
    pub(in super::super) fn from_env() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if plain { Self::Plain } else { Self::Color }
    }

    /// The style of a band.
    pub(super) fn band_style(self, at: usize) -> Style {
        self.colored(BAND_COLORS[at])
    }

    /// The character of a band: `part` with colors, otherwise the band's own character.
    pub(super) fn band_char(self, at: usize, part: char) -> char {
        match self {
            Self::Color => part,
            Self::Plain => BAND_CHARS[at],
        }
    }

    /// For errors and refusals.
    pub(super) fn bad(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// For a healthy state.
    pub(super) fn good(self) -> Style {
        self.colored(Color::Green)
    }

    /// For important names and numbers.
    pub(super) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// For less important text.
    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// For table headings.
    pub(super) fn head(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn colored(self, color: Color) -> Style {
        match self {
            Self::Color => Style::new().fg(color),
            Self::Plain => Style::new(),
        }
    }
}
