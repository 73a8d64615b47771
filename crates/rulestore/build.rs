//! Rebuilds the crate when a migration is added; by default cargo only notices changed files.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
