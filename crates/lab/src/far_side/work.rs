//! What runs on the server's machine, and on a client's that does not lead: does what it is asked, and takes everything
//! back when it hears nothing more.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use linux::CpuSet;
use linux::cpu::Scheduling;

use super::calling::{self, Calling};
use super::half::StandingHalf;
use super::standing::{Staff, Standing};
use super::watch::Watching;
use crate::channel::{Output, SILENCE_MAX, held, keep_saying};
use crate::cpus::granted;
use crate::exclusive::at_once;
use crate::machine::machine;
use crate::remote::elsewhere::remedy;
use crate::remote::links::links;
use crate::remote::order::Order;
use crate::remote::protocol::{Begin, Counterpart, Failed, RemoteRequest, Reply};
use crate::server::ServerChoice;
use crate::{Event, Home, LabError, NodeCpus, OwnProgram};

/// How often it is looked whether to stop.
const LOOKS: Duration = Duration::from_secs(1);

/// Answers requests until the input ends, nothing is heard any more, or `stop` is set. What was built is undone then.
/// `connection` is what sshd says of its own (`SSH_CONNECTION`).
///
/// # Errors
/// Something could not be undone.
pub fn work(
    own: &OwnProgram,
    home: &Home,
    connection: &str,
    stop: &Arc<AtomicBool>,
    input: impl Read + Send + 'static,
    output: &Output,
) -> Result<(), LabError> {
    let started = LabError::file("start a thread of", Path::new("hostgap remote"));
    // What it is asked may take minutes, and a process that has stopped says nothing.
    let _alive = keep_saying(output).map_err(started)?;
    let requests = RequestReader::listen(input, Arc::clone(stop))?;
    let Some(begin @ (RemoteRequest::Begin(_) | RemoteRequest::BeginClient(_))) = requests.next() else {
        return Ok(());
    };
    let mut send = |reply: Reply| {
        let line = serde_json::to_string(&reply).expect("replies are plain data");
        let mut output = held(output);
        let sent = writeln!(output, "{line}").and_then(|()| output.flush());
        if sent.is_err() {
            // No peer is left for an answer.
            stop.store(true, Ordering::Relaxed);
        }
    };
    if let Err(error) = linux::process::require_network_admin().map_err(LabError::Privileges) {
        send(failed(&error));
        return Ok(());
    }
    // What dead races left on this machine is cleaned up without a message.
    let began = at_once(home, &mut |_: Event| {}, |claim, _| {
        let _watching = Watching::start(&own.program)?;
        match begin {
            RemoteRequest::Begin(begin) => {
                let (staff, counterpart) = ready(own, connection, begin)?;
                send(Reply::Begun(Box::new(counterpart)));
                let build = |order: &Order| Standing::build(order, &staff, claim.id(), claim.dir());
                answers((build, |order: &Order| staff.unmet(order)), &requests, &mut send)
            }
            RemoteRequest::BeginClient(begin) => {
                let (staff, counterpart) = calling::ready(own, *begin)?;
                send(Reply::BegunClient(Box::new(counterpart)));
                let build = |order: &Order| Calling::build(order, &staff, claim);
                answers((build, |order: &Order| staff.unmet(order)), &requests, &mut send)
            }
            _ => Ok(()),
        }
    });
    if let Err(error) = began {
        send(failed(&error));
        return Err(error);
    }
    Ok(())
}

fn failed(error: &LabError) -> Reply {
    Reply::Failed(Failed {
        why: error.to_string(),
        remedy: remedy(error),
        fault: error.fault(),
        broken: match error {
            LabError::Broken { what, .. } => Some(what.clone()),
            _ => None,
        },
    })
}

/// Requests, read by a thread of their own.
struct RequestReader {
    lines: Receiver<String>,
    stop: Arc<AtomicBool>,
}

impl RequestReader {
    fn listen(input: impl Read + Send + 'static, stop: Arc<AtomicBool>) -> Result<RequestReader, LabError> {
        let (send, lines) = mpsc::channel();
        let ended = Arc::clone(&stop);
        let read = move || {
            for line in BufReader::new(input).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
            // Also while another one waits for its turn.
            ended.store(true, Ordering::Relaxed);
        };
        let started = thread::Builder::new().name("requests".to_owned()).spawn(read);
        started.map_err(LabError::file("start a thread of", Path::new("hostgap remote")))?;
        Ok(RequestReader { lines, stop })
    }

    /// The next request; `None`: there will be none.
    fn next(&self) -> Option<RemoteRequest> {
        let mut heard = Instant::now();
        loop {
            match self.lines.recv_timeout(LOOKS) {
                Ok(line) if line.is_empty() => heard = Instant::now(),
                // Both sides are one program; a line that was torn is the last.
                Ok(line) => return serde_json::from_str(&line).ok(),
                Err(RecvTimeoutError::Timeout) if heard.elapsed() < SILENCE_MAX => {}
                Err(_) => return None,
            }
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
        }
    }
}

/// Answers a race from its first order to its last request: builds halves, and says what of their settings this machine
/// cannot have.
fn answers<H: StandingHalf>(
    (build, unmet): (
        impl Fn(&Order) -> Result<H, LabError>,
        impl Fn(&Order) -> Result<Vec<String>, LabError>,
    ),
    requests: &RequestReader,
    send: &mut dyn FnMut(Reply),
) -> Result<(), LabError> {
    let mut standing = BTreeMap::new();
    while let Some(request) = requests.next() {
        let done = match &request {
            RemoteRequest::Prove(order) => unmet(order).map(Reply::Unmet),
            request => answer(request, &mut standing, &build),
        };
        send(done.unwrap_or_else(|error| failed(&error)));
    }
    // What this side has not been asked to take down, since the other is gone.
    let ended: Vec<LabError> = standing.into_values().filter_map(|one: H| one.take_down().err()).collect();
    ended.into_iter().next().map_or(Ok(()), Err)
}

/// Finds the server's program and looks at the machine.
fn ready(own: &OwnProgram, connection: &str, begin: Begin) -> Result<(Staff, Counterpart), LabError> {
    let is_asked = begin.cpus.is_some();
    let cpus = granted(begin.cpus, "server")?;
    let scheduling = if linux::cpu::can_realtime() { begin.scheduling } else { Scheduling::Normal };
    let server = ServerChoice::of(&begin.workload, None, own)?;
    let nodes = NodeCpus { client: CpuSet::default(), server: cpus.clone() };
    let facts = linux::features::probe()?;
    let counterpart = Counterpart {
        machine: machine(&nodes, scheduling)?,
        facts: facts.clone(),
        links: links()?,
        reached_by: reached_by(connection),
        server: server.describe(),
        serves_itself: matches!(server, ServerChoice::Hostgap(_)),
        cpus: cpus.clone(),
    };
    let counted = if is_asked { cpus.clone() } else { linux::cpu::online()? };
    Ok((Staff { server, cpus, counted, scheduling, facts }, counterpart))
}

/// The address of this machine to which ssh connected: the third word of what sshd says of the connection.
fn reached_by(connection: &str) -> Option<IpAddr> {
    connection.split_whitespace().nth(2)?.parse().ok()
}

fn answer<H: StandingHalf>(
    request: &RemoteRequest,
    standing: &mut BTreeMap<String, H>,
    build: &impl Fn(&Order) -> Result<H, LabError>,
) -> Result<Reply, LabError> {
    let broken =
        |what: &str| LabError::Broken { candidate: request.candidate().to_owned(), what: what.to_owned() };
    let unknown = || broken("it does not stand");
    match request {
        RemoteRequest::Stand(order) => {
            let built = build(order).map_err(LabError::of_candidate)?;
            standing.insert(order.candidate.clone(), built);
            Ok(Reply::Done)
        }
        RemoteRequest::TakeDown { candidate } => {
            let left = standing.remove(candidate).ok_or_else(unknown)?.take_down()?;
            Ok(Reply::TakenDown(left))
        }
        request => {
            let half = standing.get_mut(request.candidate()).ok_or_else(unknown)?;
            half.answer(request)?.ok_or_else(|| broken("the other side of the race is asked for that"))
        }
    }
}
