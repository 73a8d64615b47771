//! Spellings of a path that an upstream takes for one: none of them gets around a rule.

use crate::support::{Flask, Folder, Server};

/// Serves `/internal`, and says of any other path what arrived.
const APP: &str = "\
app.url_map.strict_slashes = False
@app.get('/internal')
def internal(): return 'secret'
@app.errorhandler(404)
def other(error): return request.environ['RAW_URI'], 404
";

/// Makes it an application that sees no case and no parameters, as IIS and Tomcat do.
const LENIENT: &str = "
inner = app.wsgi_app
def lenient(environ, start):
    path = environ['PATH_INFO'].lower()
    environ['PATH_INFO'] = '/'.join(part.split(';')[0] for part in path.split('/'))
    return inner(environ, start)
app.wsgi_app = lenient
";

const DENY: &str = "rules: [{ id: hidden, match: { path: /internal }, limit: deny }]";

fn gateway(app: &Flask, folder: &Folder, rules: &str) -> Server {
    let file = folder.write("rules.yaml", rules);
    Server::gateway_with(&file, &["--upstream", &app.url()])
}

/// `/internal/` used to pass, and Flask serves the same there.
#[test]
fn slashes_that_flask_ignores_do_not_get_around_a_path() {
    let (app, folder) = (Flask::start(APP), Folder::new());
    let open = gateway(&app, &folder, "rules: [1000/s]");
    let mut visitor = open.visitor();
    for path in ["/internal", "/internal/", "//internal/", "/internal/.", "/%69nternal/x/.."] {
        assert_eq!(visitor.get(path).body, "secret", "{path}");
    }
    let server = gateway(&app, &folder, DENY);
    let mut visitor = server.visitor();
    for path in ["/internal", "/internal/", "//internal/", "/internal/.", "/%69nternal/x/.."] {
        assert_eq!(visitor.get(path).status, 429, "{path}");
    }
    for path in ["/INTERNAL", "/internal;x=1", "/internal."] {
        let answer = visitor.get(path);
        assert_eq!((answer.status, answer.body), (404, path.into()), "Flask tells them apart");
    }
}

#[test]
fn an_upstream_that_ignores_case_and_parameters_needs_rules_that_do() {
    let (app, folder) = (Flask::start(&format!("{APP}{LENIENT}")), Folder::new());
    let exact = gateway(&app, &folder, DENY);
    let mut visitor = exact.visitor();
    for path in ["/INTERNAL", "/internal;x=1"] {
        assert_eq!(visitor.get(path).body, "secret", "{path}");
    }
    let paths = "paths: { ignore_case: true, strip_parameters: true }";
    let server = gateway(&app, &folder, &format!("{paths}\n{DENY}"));
    let mut visitor = server.visitor();
    for path in ["/internal", "/INTERNAL/", "/internal;x=1", "/Internal;a;b=c/", "/;x/internal"] {
        assert_eq!(visitor.get(path).status, 429, "{path}");
    }
    let answer = visitor.get("/Other;X=1/Page");
    assert_eq!(answer.status, 404, "{answer:?}");
    assert_eq!(answer.body, "/Other;X=1/Page", "forwarded as the client wrote it");
}
