//! What every repository promises, on real SQLite files and a real PostgreSQL.

mod books;
mod common;
mod faults;
mod hostile;
mod race;
mod schema;
mod stirred;
mod violations;
