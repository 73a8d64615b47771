//! The screenshots of the documentation exist and are not too large; UPDATE_GOLDEN=1 retakes them.

use std::path::Path;

use serde_json::json;

use super::browser_script::run_script;
use crate::demo::DemoProcess;

/// Keeps pages with screenshots fast to load.
const MAX_IMAGE_BYTES: u64 = 300_000;

/// How long the demo has run when the screenshots are taken.
const DEMO_SECONDS: u32 = 60;

#[test]
fn documentation_screenshots_exist_and_are_small() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("docs/images");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        let demo = DemoProcess::start(&[]);
        let base = format!("http://{}", demo.dashboard_address());
        run_script(
            "pictures.js",
            &json!({"base": base, "folder": folder, "seconds": DEMO_SECONDS}),
        );
    }
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let page = std::fs::read_to_string(root.join("docs/dashboard.md")).unwrap();
    for name in ["dashboard-light", "dashboard-dark", "algorithms-light", "algorithms-dark"] {
        let length = std::fs::metadata(folder.join(format!("{name}.png"))).unwrap().len();
        assert!(length < MAX_IMAGE_BYTES, "{name}.png has {length} bytes");
        let shown = format!("images/{name}.png");
        assert!(readme.contains(&shown) || page.contains(&shown), "no page shows {shown}");
    }
}
