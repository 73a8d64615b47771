//! The files that describe the services, compiled from the `.proto` files beside them, and where in them each
//! name is. A test compiles them anew and compares.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::protobuf::{Malformed, Reader, Value};

/// A `google.protobuf.FileDescriptorSet`.
static COMPILED: &[u8] = include_bytes!("../../proto/services.binpb");

/// The files, by what is in them.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    files: Vec<File>,
    names: HashMap<String, usize>,
    services: Vec<String>,
}

#[derive(Debug, Default)]
struct File {
    bytes: &'static [u8],
    name: &'static [u8],
    package: String,
    imports: Vec<&'static [u8]>,
}

/// Something with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// With fields, messages and enums inside.
    Message,
    /// With methods inside.
    Service,
    /// An enum, a field, a method: nothing in it is asked for.
    Leaf,
}

/// The files of this door.
pub(super) fn set() -> &'static Descriptors {
    static SET: LazyLock<Descriptors> = LazyLock::new(|| {
        // It was compiled with the program, and a test reads it.
        Descriptors::read(COMPILED).unwrap_or_default()
    });
    &SET
}

impl Descriptors {
    fn read(set: &'static [u8]) -> Result<Self, Malformed> {
        let (mut descriptors, mut reader) = (Self::default(), Reader::new(set));
        while let Some(field) = reader.field()? {
            if let (1, Value::Bytes(bytes)) = field {
                descriptors.add(bytes)?;
            }
        }
        Ok(descriptors)
    }

    /// The full names of the services.
    pub(super) fn services(&self) -> impl Iterator<Item = &str> {
        self.services.iter().map(String::as_str)
    }

    /// A file by its name, with those that it imports.
    pub(super) fn file(&self, name: &[u8]) -> Option<Vec<&'static [u8]>> {
        let at = self.files.iter().position(|file| file.name == name)?;
        Some(self.with_imports(at))
    }

    /// The file that a full name is in, with those that it imports.
    pub(super) fn file_with(&self, name: &[u8]) -> Option<Vec<&'static [u8]>> {
        let at = self.names.get(std::str::from_utf8(name).ok()?)?;
        Some(self.with_imports(*at))
    }

    fn with_imports(&self, first: usize) -> Vec<&'static [u8]> {
        let mut found = vec![first];
        let mut next = 0;
        while let Some(at) = found.get(next).copied() {
            let imported = |file: &File| self.files[at].imports.contains(&file.name);
            let more = (0..self.files.len()).filter(|i| imported(&self.files[*i]));
            let more: Vec<usize> = more.filter(|i| !found.contains(i)).collect();
            found.extend(more);
            next += 1;
        }
        found.into_iter().map(|at| self.files[at].bytes).collect()
    }

    /// Adds a `FileDescriptorProto`.
    fn add(&mut self, bytes: &'static [u8]) -> Result<(), Malformed> {
        let mut file = File { bytes, ..File::default() };
        let mut inside = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.field()? {
            match field {
                (1, Value::Bytes(name)) => file.name = name,
                (2, Value::Bytes(package)) => file.package = text(package),
                (3, Value::Bytes(import)) => file.imports.push(import),
                (4, Value::Bytes(bytes)) => inside.push((Kind::Message, bytes)),
                (5, Value::Bytes(bytes)) => inside.push((Kind::Leaf, bytes)),
                (6, Value::Bytes(bytes)) => inside.push((Kind::Service, bytes)),
                _ => {}
            }
        }
        let (at, package) = (self.files.len(), file.package.clone());
        self.files.push(file);
        for (kind, bytes) in inside {
            let name = self.name(at, &package, kind, bytes)?;
            if kind == Kind::Service {
                self.services.push(name);
            }
        }
        Ok(())
    }

    /// Notes something with a name, which is its first field, and what has names inside it.
    fn name(
        &mut self,
        file: usize,
        scope: &str,
        kind: Kind,
        bytes: &'static [u8],
    ) -> Result<String, Malformed> {
        let (mut own, mut inside, mut reader) = (String::new(), Vec::new(), Reader::new(bytes));
        while let Some(field) = reader.field()? {
            match (kind, field) {
                (_, (1, Value::Bytes(name))) => own = format!("{scope}.{}", text(name)),
                (Kind::Message, (3, Value::Bytes(bytes))) => inside.push((Kind::Message, bytes)),
                (Kind::Message, (4, Value::Bytes(bytes))) => inside.push((Kind::Leaf, bytes)),
                (Kind::Message | Kind::Service, (2, Value::Bytes(bytes))) => {
                    inside.push((Kind::Leaf, bytes));
                }
                _ => {}
            }
        }
        for (kind, bytes) in inside {
            self.name(file, &own, kind, bytes)?;
        }
        self.names.insert(own.clone(), file);
        Ok(own)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
