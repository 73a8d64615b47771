//! Colours and weights, or only weights where no colours are wanted (NO_COLOR): everything can be told apart without.

use ratatui::style::{Color, Modifier, Style};

use super::super::tick_delta::BANDS;

/// What to draw with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Palette {
    Color,
    Plain,
}

/// As [`BANDS`].
const BAND_COLORS: [Color; BANDS.len()] =
    [Color::Green, Color::Blue, Color::Yellow, Color::Red, Color::Magenta];

/// What stands for a band where it has no colour.
const BAND_CHARS: [char; BANDS.len()] = [':', 's', 'w', '#', 'B'];

impl Palette {
    /// What the environment wants.
    pub(in super::super) fn from_env() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if plain { Self::Plain } else { Self::Color }
    }

    /// For a band of decisions.
    pub(super) fn band_style(self, at: usize) -> Style {
        self.colored(BAND_COLORS[at])
    }

    /// What a full cell of a band is, and one of so many eighths.
    pub(super) fn band_char(self, at: usize, part: char) -> char {
        match self {
            Self::Color => part,
            Self::Plain => BAND_CHARS[at],
        }
    }

    /// What is wrong.
    pub(super) fn bad(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// What is well.
    pub(super) fn good(self) -> Style {
        self.colored(Color::Green)
    }

    /// Names and numbers that are looked for.
    pub(super) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What may be skipped when reading.
    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The heads of tables.
    pub(super) fn head(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn colored(self, colour: Color) -> Style {
        match self {
            Self::Color => Style::new().fg(colour),
            Self::Plain => Style::new(),
        }
    }
}
