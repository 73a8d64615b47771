//! Certificates and keys as people make them: by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_testkit::nginx::Nginx;

/// A certificate authority of the test's own.
pub struct Authority {
    folder: PathBuf,
    name: String,
}

impl Authority {
    /// Makes one whose files are in `folder`.
    pub fn make(folder: &Path, name: &str) -> Self {
        let authority = Self { folder: folder.to_owned(), name: name.to_owned() };
        let subject = format!("/CN={name}");
        let mut words = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt"];
        words.extend(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", &subject]);
        let (key, certificate) = (authority.file("key"), authority.certificate());
        words.extend(["-keyout", text(&key), "-out", text(&certificate)]);
        openssl(&words);
        authority
    }

    /// The file of its own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.file("pem")
    }

    /// Makes a certificate for localhost and 127.0.0.1, and returns it with its key.
    pub fn issue(&self) -> (Vec<u8>, Vec<u8>) {
        let (key, certificate) = (self.file("leaf.key"), self.file("leaf.pem"));
        let (ca, ca_key) = (self.certificate(), self.file("key"));
        let mut words = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt"];
        words.extend(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
        words.extend(["-subj", "/CN=localhost", "-CA", text(&ca), "-CAkey", text(&ca_key)]);
        words.extend(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
        words.extend(["-addext", "basicConstraints=critical,CA:FALSE"]);
        words.extend(["-keyout", text(&key), "-out", text(&certificate)]);
        openssl(&words);
        (std::fs::read(certificate).unwrap(), std::fs::read(key).unwrap())
    }

    /// A nginx with a certificate of this authority.
    pub fn nginx(&self, listen: &str, lines: &str) -> Nginx {
        let (certificate, key) = self.issue();
        Nginx::start_with(listen, |folder: &Path| {
            let files = [("cert.pem", certificate), ("key.pem", key)];
            let [cert, key] = files.map(|(name, contents)| {
                std::fs::write(folder.join(name), contents).unwrap();
                folder.join(name).display().to_string()
            });
            format!("ssl_certificate {cert}; ssl_certificate_key {key}; {lines}")
        })
    }

    fn file(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{}.{end}", self.name))
    }
}

/// Runs openssl, which must succeed, and returns what it prints.
#[track_caller]
pub fn openssl(words: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl").args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
