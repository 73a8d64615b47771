//! The dashboard's files, embedded in the program: plain HTML, CSS and ES modules. They contain no
//! secrets, so they are served without a token; the data come from the API, which requires one.

use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY};
use http::{HeaderName, Response};
use http_body_util::Full;

/// Allows only our own scripts, styles and API; forbids inline code and framing.
const CONTENT_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// An embedded file and the path at which it is served.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DashboardFile {
    path: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(DashboardFile {
            path: concat!("/dashboard/", $name),
            bytes: include_bytes!(concat!("../dashboard/", $name)),
        }),*]
    };
}

const INDEX: DashboardFile =
    DashboardFile { path: "/", bytes: include_bytes!("../dashboard/index.html") };

const FILES: &[DashboardFile] = files![
    "icon.svg",
    "style/base.css",
    "style/charts.css",
    "style/frame.css",
    "style/pages.css",
    "style/parts.css",
    "js/algorithms.js",
    "js/api.js",
    "js/author.js",
    "js/chart/frame.js",
    "js/chart/lanes.js",
    "js/chart/line.js",
    "js/chart/spark.js",
    "js/chart/stack.js",
    "js/chart/svg.js",
    "js/confirm.js",
    "js/counts.js",
    "js/diff.js",
    "js/dom.js",
    "js/editor.js",
    "js/format.js",
    "js/history.js",
    "js/identity.js",
    "js/live.js",
    "js/main.js",
    "js/page/algorithms.js",
    "js/page/client.js",
    "js/page/client_tables.js",
    "js/page/clients.js",
    "js/page/edit.js",
    "js/page/overview.js",
    "js/page/rule_rows.js",
    "js/page/rules.js",
    "js/page/try.js",
    "js/page/versions.js",
    "js/token.js",
    "js/traffic.js",
];

impl DashboardFile {
    /// The file at a path, if there is one.
    pub(crate) fn find(path: &str) -> Option<&'static Self> {
        match path {
            "/" => Some(&INDEX),
            path => FILES.iter().find(|file| file.path == path),
        }
    }

    pub(crate) fn to_response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(Bytes::from_static(self.bytes)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type()));
        headers.insert(CONTENT_SECURITY_POLICY, CONTENT_POLICY);
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
        response
    }

    fn media_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map(|(_, ending)| ending) {
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn text(file: &DashboardFile) -> &'static str {
        str::from_utf8(file.bytes).unwrap()
    }

    fn list_files(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => list_files(&path, found),
                false => {
                    found.push(path.to_str().unwrap().rsplit_once("/dashboard/").unwrap().1.into());
                }
            }
        }
    }

    #[test]
    fn every_dashboard_file_is_embedded() {
        let mut found = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        // Only the subfolders: index.html is served at `/`.
        for part in ["style", "js"] {
            list_files(&root.join("dashboard").join(part), &mut found);
        }
        let known = |name: &String| FILES.iter().any(|file| file.path.ends_with(name.as_str()));
        assert!(found.len() > 20, "{found:?}");
        assert_eq!(
            found.iter().filter(|name| !known(name)).collect::<Vec<_>>(),
            Vec::<&String>::new()
        );
    }

    /// Every file that the page or a module refers to is embedded under exactly that path.
    #[test]
    fn every_referenced_file_is_embedded() {
        let modules = FILES.iter().filter(|file| file.path.ends_with(".js"));
        for file in modules {
            for line in text(file).lines().filter(|line| line.starts_with("import")) {
                let name = line.split('"').nth(1).unwrap();
                assert!(DashboardFile::find(name).is_some(), "{}: {name}", file.path);
            }
        }
        for piece in text(&INDEX).split("/dashboard/").skip(1) {
            let path = format!("/dashboard/{}", piece.split('"').next().unwrap());
            assert!(DashboardFile::find(&path).is_some(), "{path}");
        }
    }

    /// Data are only ever inserted as text nodes. The content security policy would block injected
    /// scripts; this test also prevents injected markup.
    #[test]
    fn dashboard_uses_no_inline_markup() {
        let banned =
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "DOMParser"];
        for file in FILES.iter().chain([&INDEX]) {
            for word in
                banned.into_iter().chain(["style=", "onclick", "onload", "http://", "https://"])
            {
                let found = text(file).replace("http://www.w3.org/", "").contains(word);
                assert!(!found, "{}: {word}", file.path);
            }
        }
    }
}
