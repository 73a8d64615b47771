//! Markdown tables and memory readings.
