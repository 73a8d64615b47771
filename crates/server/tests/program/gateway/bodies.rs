//! Long bodies pass whole, and the gateway keeps none of them.

use std::path::Path;

use tidegate_testkit::nginx::Nginx;

use crate::support::{Folder, Server, curl};

const LENGTH: usize = 90_000_000;

/// The most memory that a process has had, in KiB.
fn most_memory(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_long_file_goes_up_and_comes_down_the_same_over_both_versions() {
    let folder = Folder::new();
    let bytes: Vec<u8> = (0..LENGTH).map(|n| (n * 7 + n / 251).to_le_bytes()[0]).collect();
    let sent = folder.write("sent", &bytes);
    // What is put there comes back from there.
    let nginx = Nginx::start_with("", |nginx: &Path| {
        format!("root {}; dav_methods PUT; client_max_body_size 0;", nginx.display())
    });
    let server = Server::in_front_of(&nginx.url(), &["--limit", "100/s by ip"]);
    let before = most_memory(server.pid());
    for (version, name) in [("--http1.1", "one"), ("--http2-prior-knowledge", "two")] {
        let url = format!("http://{}/{name}", server.gateway);
        let put = curl(&[version, "-T", sent.to_str().unwrap(), &url]);
        assert!([201, 204].contains(&put.status), "{put:?} {}", server.log());
        assert!(std::fs::read(nginx.folder().join(name)).unwrap() == bytes, "{name} went up");
        let got = folder.path(name);
        let fetched = curl(&[version, "-o", got.to_str().unwrap(), &url]);
        assert_eq!(fetched.code, 0, "{fetched:?}");
        let got = std::fs::read(got).unwrap();
        // With `-i` the head is in the file too.
        assert!(got.ends_with(&bytes), "{name} came down: {} bytes", got.len());
    }
    // Measured: 15 to 25 MB with bodies of 40 MB as with these, so it does not grow with them.
    let more = most_memory(server.pid()) - before;
    assert!(more < LENGTH / 1024 / 2, "it kept {more} KiB");
}
