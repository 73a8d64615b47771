//! The protobuf wire format, as far as the messages of this project need it. Fields are read in
//! place without copying; the caller interprets them.
//!
//! Handwritten because a library would copy every string of a request, which takes longer than the
//! decision. Tests compare it with a library.

mod read;
mod write;

pub use read::{ProtoDecodeError, ProtoReader, WireValue};
pub use write::ProtoWriter;
