//! Equivalent spellings of a path: none of them bypasses a rule.

use crate::support::{FlaskApp, ServerProcess, TestFolder};

/// Serves `/internal`; for any other path, returns the path as received.
const APP_ROUTES: &str = "\
app.url_map.strict_slashes = False
@app.get('/internal')
def internal(): return 'secret'
@app.errorhandler(404)
def other(error): return request.environ['RAW_URI'], 404
";

/// Makes the application ignore case and path parameters, as IIS and Tomcat do.
const LENIENT_APP: &str = "
inner = app.wsgi_app
def lenient(environ, start):
    path = environ['PATH_INFO'].lower()
    environ['PATH_INFO'] = '/'.join(part.split(';')[0] for part in path.split('/'))
    return inner(environ, start)
app.wsgi_app = lenient
";

const DENY_INTERNAL: &str = "rules: [{ id: hidden, match: { path: /internal }, limit: deny }]";

fn start_gateway(app: &FlaskApp, folder: &TestFolder, rules: &str) -> ServerProcess {
    let file = folder.write("rules.yaml", rules);
    ServerProcess::start_gateway_with_config(&file, &["--upstream", &app.url()])
}

/// Regression test: `/internal/` passed, and Flask serves the same page there.
#[test]
fn equivalent_slashes_cannot_bypass_path_rule() {
    let (app, folder) = (FlaskApp::start(APP_ROUTES), TestFolder::new());
    let open = start_gateway(&app, &folder, "rules: [1000/s]");
    let mut client = open.gateway_client();
    for path in ["/internal", "/internal/", "//internal/", "/internal/.", "/%69nternal/x/.."] {
        assert_eq!(client.get(path).body, "secret", "{path}");
    }
    let server = start_gateway(&app, &folder, DENY_INTERNAL);
    let mut client = server.gateway_client();
    for path in ["/internal", "/internal/", "//internal/", "/internal/.", "/%69nternal/x/.."] {
        assert_eq!(client.get(path).status, 429, "{path}");
    }
    for path in ["/INTERNAL", "/internal;x=1", "/internal."] {
        let response = client.get(path);
        assert_eq!(
            (response.status, response.body),
            (404, path.into()),
            "different paths to Flask"
        );
    }
}

#[test]
fn ignore_case_and_parameters_match_lenient_upstream() {
    let (app, folder) = (FlaskApp::start(&format!("{APP_ROUTES}{LENIENT_APP}")), TestFolder::new());
    let exact = start_gateway(&app, &folder, DENY_INTERNAL);
    let mut client = exact.gateway_client();
    for path in ["/INTERNAL", "/internal;x=1"] {
        assert_eq!(client.get(path).body, "secret", "{path}");
    }
    let paths = "paths: { ignore_case: true, strip_parameters: true }";
    let server = start_gateway(&app, &folder, &format!("{paths}\n{DENY_INTERNAL}"));
    let mut client = server.gateway_client();
    for path in ["/internal", "/INTERNAL/", "/internal;x=1", "/Internal;a;b=c/", "/;x/internal"] {
        assert_eq!(client.get(path).status, 429, "{path}");
    }
    let response = client.get("/Other;X=1/Page");
    assert_eq!(response.status, 404, "{response:?}");
    assert_eq!(response.body, "/Other;X=1/Page", "forwarded as the client wrote it");
}
