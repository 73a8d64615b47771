//! The wire format of protobuf, as much of it as a handful of messages takes. Fields are read in place and
//! nothing is copied; what a field means is the business of whoever reads it.
//!
//! By hand because a library would copy every string of a request that is decided in less time than that
//! takes; the tests compare it with one.

mod read;
mod write;

pub(crate) use read::{Malformed, Reader, Value};
pub(crate) use write::Writer;
