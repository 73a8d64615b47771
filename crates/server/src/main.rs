//! The `tidegate` program. Everything is in the library; this only ends the process.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate_server::run(std::env::args_os())
}
