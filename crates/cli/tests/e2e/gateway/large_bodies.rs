//! Large bodies are forwarded completely, and the gateway buffers none of them.

use std::path::Path;

use tidegate_testkit::nginx::NginxServer;

use crate::support::{ServerProcess, TestFolder, run_curl};

const BODY_BYTES: usize = 90_000_000;

/// Peak resident memory of a process in KiB.
fn peak_memory_kib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn large_body_streams_without_buffering() {
    let folder = TestFolder::new();
    let bytes: Vec<u8> = (0..BODY_BYTES).map(|n| (n * 7 + n / 251).to_le_bytes()[0]).collect();
    let sent = folder.write("sent", &bytes);
    // nginx stores uploads and serves them again.
    let nginx = NginxServer::start_with("", |nginx: &Path| {
        format!("root {}; dav_methods PUT; client_max_body_size 0;", nginx.display())
    });
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "100/s by ip"]);
    let before = peak_memory_kib(server.pid());
    for (version, name) in [("--http1.1", "one"), ("--http2-prior-knowledge", "two")] {
        let url = format!("http://{}/{name}", server.gateway);
        let put = run_curl(&[version, "-T", sent.to_str().unwrap(), &url]);
        assert!([201, 204].contains(&put.status), "{put:?} {}", server.log());
        let stored = std::fs::read(nginx.folder().join(name)).unwrap();
        assert!(stored == bytes, "the upload of {name} differs");
        let got = folder.path(name);
        let fetched = run_curl(&[version, "-o", got.to_str().unwrap(), &url]);
        assert_eq!(fetched.exit_code, 0, "{fetched:?}");
        let got = std::fs::read(got).unwrap();
        // With `-i`, curl writes the response head to the file too.
        assert!(got.ends_with(&bytes), "the download of {name} differs: {} bytes", got.len());
    }
    // Measured: 15 to 25 MB, for bodies of 40 MB as well, so memory does not grow with their size.
    let more = peak_memory_kib(server.pid()) - before;
    assert!(more < BODY_BYTES / 1024 / 2, "memory grew by {more} KiB");
}
