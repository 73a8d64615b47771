//! Descriptors of the services for server reflection, compiled from the crate's `.proto` files, and
//! an index of the names in them. A test recompiles the files and compares the result.

use std::collections::HashMap;
use std::sync::LazyLock;

use tidegate_web::protobuf::{ProtoDecodeError, ProtoReader, WireValue};

/// A `google.protobuf.FileDescriptorSet`.
static DESCRIPTOR_SET: &[u8] = include_bytes!("../../proto/services.binpb");

/// The descriptor files, indexed by the names they define.
#[derive(Debug, Default)]
pub(super) struct DescriptorPool {
    files: Vec<FileDescriptor>,
    symbols: HashMap<String, usize>,
    services: Vec<String>,
}

#[derive(Debug, Default)]
struct FileDescriptor {
    bytes: &'static [u8],
    name: &'static [u8],
    package: String,
    imports: Vec<&'static [u8]>,
}

/// Kind of a named element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SymbolKind {
    /// Contains fields, messages and enums.
    Message,
    /// Contains methods.
    Service,
    /// An enum, field or method; its contents are not indexed.
    Leaf,
}

/// Returns the descriptors of this server's services.
pub(super) fn shared_pool() -> &'static DescriptorPool {
    static SET: LazyLock<DescriptorPool> = LazyLock::new(|| {
        // The set is compiled into the program, and a test checks that it can be read.
        DescriptorPool::parse(DESCRIPTOR_SET).unwrap_or_default()
    });
    &SET
}

impl DescriptorPool {
    fn parse(set: &'static [u8]) -> Result<Self, ProtoDecodeError> {
        let (mut descriptors, mut reader) = (Self::default(), ProtoReader::new(set));
        while let Some(field) = reader.next_field()? {
            if let (1, WireValue::Bytes(bytes)) = field {
                descriptors.add_file(bytes)?;
            }
        }
        Ok(descriptors)
    }

    /// Full names of the services.
    pub(super) fn services(&self) -> impl Iterator<Item = &str> {
        self.services.iter().map(String::as_str)
    }

    /// Returns the file with this name, followed by all files it imports, directly or indirectly.
    pub(super) fn file_by_name(&self, name: &[u8]) -> Option<Vec<&'static [u8]>> {
        let at = self.files.iter().position(|file| file.name == name)?;
        Some(self.with_imports(at))
    }

    /// Returns the file that defines this full name, followed by all files it imports.
    pub(super) fn file_containing_symbol(&self, name: &[u8]) -> Option<Vec<&'static [u8]>> {
        let at = self.symbols.get(std::str::from_utf8(name).ok()?)?;
        Some(self.with_imports(*at))
    }

    fn with_imports(&self, first: usize) -> Vec<&'static [u8]> {
        let mut found = vec![first];
        let mut next = 0;
        while let Some(at) = found.get(next).copied() {
            let imported = |file: &FileDescriptor| self.files[at].imports.contains(&file.name);
            let more = (0..self.files.len()).filter(|i| imported(&self.files[*i]));
            let more: Vec<usize> = more.filter(|i| !found.contains(i)).collect();
            found.extend(more);
            next += 1;
        }
        found.into_iter().map(|at| self.files[at].bytes).collect()
    }

    /// Adds a `FileDescriptorProto`.
    fn add_file(&mut self, bytes: &'static [u8]) -> Result<(), ProtoDecodeError> {
        let mut file = FileDescriptor { bytes, ..FileDescriptor::default() };
        let mut inside = Vec::new();
        let mut reader = ProtoReader::new(bytes);
        while let Some(field) = reader.next_field()? {
            match field {
                (1, WireValue::Bytes(name)) => file.name = name,
                (2, WireValue::Bytes(package)) => file.package = lossy_text(package),
                (3, WireValue::Bytes(import)) => file.imports.push(import),
                (4, WireValue::Bytes(bytes)) => inside.push((SymbolKind::Message, bytes)),
                (5, WireValue::Bytes(bytes)) => inside.push((SymbolKind::Leaf, bytes)),
                (6, WireValue::Bytes(bytes)) => inside.push((SymbolKind::Service, bytes)),
                _ => {}
            }
        }
        let (at, package) = (self.files.len(), file.package.clone());
        self.files.push(file);
        for (kind, bytes) in inside {
            let name = self.index_symbol(at, &package, kind, bytes)?;
            if kind == SymbolKind::Service {
                self.services.push(name);
            }
        }
        Ok(())
    }

    /// Indexes an element by its name, which is always field 1, and then the elements inside it.
    fn index_symbol(
        &mut self,
        file: usize,
        scope: &str,
        kind: SymbolKind,
        bytes: &'static [u8],
    ) -> Result<String, ProtoDecodeError> {
        let (mut full_name, mut inside, mut reader) =
            (String::new(), Vec::new(), ProtoReader::new(bytes));
        while let Some(field) = reader.next_field()? {
            match (kind, field) {
                (_, (1, WireValue::Bytes(name))) => {
                    full_name = format!("{scope}.{}", lossy_text(name));
                }
                (SymbolKind::Message, (3, WireValue::Bytes(bytes))) => {
                    inside.push((SymbolKind::Message, bytes));
                }
                (SymbolKind::Message, (4, WireValue::Bytes(bytes))) => {
                    inside.push((SymbolKind::Leaf, bytes));
                }
                (SymbolKind::Message | SymbolKind::Service, (2, WireValue::Bytes(bytes))) => {
                    inside.push((SymbolKind::Leaf, bytes));
                }
                _ => {}
            }
        }
        for (kind, bytes) in inside {
            self.index_symbol(file, &full_name, kind, bytes)?;
        }
        self.symbols.insert(full_name.clone(), file);
        Ok(full_name)
    }
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
