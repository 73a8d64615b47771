//! An upstream written with Flask: shows how a widely used framework interprets a request.

use std::net::TcpStream;

use tidegate_testkit::port::ReservedPort;
use tidegate_testkit::process::ChildProcess;
use tidegate_testkit::python::python;

use super::{TestFolder, wait_for};

/// A running Flask application.
pub struct FlaskApp {
    _process: ChildProcess,
    port: ReservedPort,
    _folder: TestFolder,
}

impl FlaskApp {
    /// Starts an application on a free port. `routes` is Python that adds routes to `app`, for
    /// instance `@app.post("/login")\ndef login(): return "in"`.
    #[track_caller]
    pub fn start(routes: &str) -> Self {
        let (folder, port) = (TestFolder::new(), ReservedPort::reserve());
        let (at, number) = (port.address(), port.number());
        let program = format!(
            "from flask import Flask, request\n\
             from werkzeug.serving import make_server\n\
             app = Flask(__name__)\n\
             {routes}\n\
             make_server('127.0.0.1', {number}, app, threaded=True).serve_forever()\n"
        );
        let mut command = python();
        command.arg(folder.write("app.py", program));
        let process = ChildProcess::start(&command, &folder.path("flask.log"));
        wait_for("Flask", || {
            assert!(process.is_running(), "{}", process.log());
            TcpStream::connect(at).ok()
        });
        Self { _process: process, port, _folder: folder }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }
}
