//! Certificates and keys made with openssl, as operators make them.

use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_testkit::nginx::NginxServer;

/// A certificate authority for one test.
pub struct TestCertificateAuthority {
    folder: PathBuf,
    name: String,
}

impl TestCertificateAuthority {
    /// Creates one whose files are in `folder`.
    pub fn create(folder: &Path, name: &str) -> Self {
        let authority = Self { folder: folder.to_owned(), name: name.to_owned() };
        let subject = format!("/CN={name}");
        let mut args = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt"];
        args.extend(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", &subject]);
        let (key, certificate) =
            (authority.file_with_extension("key"), authority.certificate_path());
        args.extend(["-keyout", path_str(&key), "-out", path_str(&certificate)]);
        run_openssl(&args);
        authority
    }

    /// Path of the authority's certificate.
    pub fn certificate_path(&self) -> PathBuf {
        self.file_with_extension("pem")
    }

    /// Issues a certificate for localhost and 127.0.0.1, and returns it with its key.
    pub fn issue_certificate(&self) -> (Vec<u8>, Vec<u8>) {
        let (key, certificate) =
            (self.file_with_extension("leaf.key"), self.file_with_extension("leaf.pem"));
        let (ca, ca_key) = (self.certificate_path(), self.file_with_extension("key"));
        let mut args = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt"];
        args.extend(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
        args.extend(["-subj", "/CN=localhost", "-CA", path_str(&ca), "-CAkey", path_str(&ca_key)]);
        args.extend(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
        args.extend(["-addext", "basicConstraints=critical,CA:FALSE"]);
        args.extend(["-keyout", path_str(&key), "-out", path_str(&certificate)]);
        run_openssl(&args);
        (std::fs::read(certificate).unwrap(), std::fs::read(key).unwrap())
    }

    /// Starts an nginx with a certificate of this authority.
    pub fn start_nginx(&self, listen: &str, lines: &str) -> NginxServer {
        let (certificate, key) = self.issue_certificate();
        NginxServer::start_with(listen, |folder: &Path| {
            let files = [("cert.pem", certificate), ("key.pem", key)];
            let [cert, key] = files.map(|(name, contents)| {
                std::fs::write(folder.join(name), contents).unwrap();
                folder.join(name).display().to_string()
            });
            format!("ssl_certificate {cert}; ssl_certificate_key {key}; {lines}")
        })
    }

    fn file_with_extension(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{}.{end}", self.name))
    }
}

/// Runs openssl and returns its stdout; fails if openssl does.
#[track_caller]
pub fn run_openssl(args: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl").args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn path_str(path: &Path) -> &str {
    path.to_str().unwrap()
}
