//! New migrations are compiled in: without this, cargo sees changed files only.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
