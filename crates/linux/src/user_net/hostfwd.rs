//! Ports of the node that slirp4netns leads to the pod, by requests to its socket. pasta has them in its arguments.
//!
//! Source: slirp4netns(1), "API socket".

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use super::setup::{self, ForwardedPort, UserNet};
use crate::error::Attempt;
use crate::{Error, Result};

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn connect(net: &UserNet) -> io::Result<UnixStream> {
    UnixStream::connect(net.dir().path().join(setup::SOCKET))
}

pub(super) fn add(net: &UserNet, port: ForwardedPort) -> Result<()> {
    let Some(request) = net.hostfwd(port) else { return Ok(()) };
    let attempted =
        || format!("lead port {} of {} to port {} of the pod", port.port, port.protocol.name(), port.to);
    let answer = ask(net, &request).attempt(attempted)?;
    match serde_json::from_str::<Value>(&answer) {
        Ok(answer) if answer.get("return").is_some() => Ok(()),
        Ok(_) | Err(_) => {
            Err(Error::new(attempted(), io::Error::other(format!("slirp4netns answered {answer}"))))
        }
    }
}

fn ask(net: &UserNet, request: &Value) -> io::Result<String> {
    let mut stream = connect(net)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.to_string().as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
