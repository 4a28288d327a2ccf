//! The client's machine, when it is another too: it leads the race there, and asks the other machines by way of the
//! process that started all.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use linux::CpuSet;
use linux::cpu::Scheduling;
use record::Experiment;
use serde::{Deserialize, Serialize};

use super::outward::Outward;
use super::relay::{AGAIN, ASK, LOST, NOT_STARTED, STARTED};
use crate::channel::{ANSWER_MAX, Conversation, Output, SILENCE_MAX, held, keep_saying, lines, silent};
use crate::cni::PluginDirs;
use crate::cpus::granted;
use crate::error::Fault;
use crate::far_side::Watching;
use crate::race::{Finished, Race, RaceOptions};
use crate::remote::client::RemoteClient;
use crate::remote::{Machines, Remote, elsewhere};
use crate::{Event, Home, LabError, OwnProgram};

/// What stands before the words of a leading process about why it could not go on.
pub(super) const FAILED: &str = "failed ";
/// The exit status of a leading process that was asked to stop, and has undone everything.
pub const STOPPED: u8 = 130;
/// Said to the leading process: end the race.
pub(super) const STOP: &str = "stop";

/// A race, as it is handed to the client's machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Lead {
    /// The experiment, as the text of its TOML file.
    pub(super) experiment: String,
    /// The server's machine, as the user names it.
    pub(super) server: String,
    /// The machines with further clients, likewise.
    pub(super) clients: Vec<String>,
    /// The CPUs of each client.
    pub(super) cpus: Option<CpuSet>,
    pub(super) server_cpus: Option<CpuSet>,
    pub(super) scheduling: Scheduling,
    /// The client's link to the server's machine.
    pub(super) nic: Option<String>,
}

/// Why a race could not go on, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeadFailed {
    /// The machine, as the user names it; `None`: the leading one.
    pub(super) machine: Option<String>,
    pub(super) why: String,
    /// What the user can try, shown as a hint.
    pub(super) remedy: Option<String>,
    /// What kind of failure it is.
    pub(super) fault: Fault,
}

impl LeadFailed {
    /// The same as an error. `leading` is the leading machine, as the user names it.
    pub(super) fn into_error(self, leading: &dyn fmt::Display) -> LabError {
        let LeadFailed { machine, why, remedy, fault } = self;
        let machine = machine.unwrap_or_else(|| leading.to_string());
        LabError::Machine { machine, why, remedy, fault }
    }
}

impl From<&LabError> for LeadFailed {
    fn from(error: &LabError) -> LeadFailed {
        let (machine, why, remedy) = match error {
            LabError::Machine { machine, why, remedy, .. } => (Some(machine), why.clone(), remedy.clone()),
            LabError::ClientLost { machine, why } => (Some(machine), why.clone(), None),
            other => (None, other.to_string(), elsewhere::remedy(other)),
        };
        LeadFailed { machine: machine.cloned(), why, remedy, fault: error.fault() }
    }
}

/// Leads a race on this machine, as the first line of the input says. Events, lines of the record and questions to the
/// other machines go to the output, and so does an error. All machines are as before when it returns.
///
/// # Errors
/// Those of a race.
pub fn lead(
    own: &OwnProgram,
    home: &Home,
    stop: &Arc<AtomicBool>,
    input: impl Read + Send + 'static,
    output: &Output,
) -> Result<Finished, LabError> {
    let started = LabError::file("start a thread of", Path::new("hostgap remote"));
    let alive = keep_saying(output).map_err(started);
    let result = alive.and_then(|_alive| led(own, home, stop, input, output));
    if let Err(error) = &result {
        let failed = serde_json::to_string(&LeadFailed::from(error)).expect("words are plain data");
        let mut output = held(output);
        // A lost listener does not change what became of the race.
        let _ = writeln!(output, "{FAILED}{failed}").and_then(|()| output.flush());
    }
    result
}

fn led(
    own: &OwnProgram,
    home: &Home,
    stop: &Arc<AtomicBool>,
    input: impl Read + Send + 'static,
    output: &Output,
) -> Result<Finished, LabError> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let heard = answers(input, Arc::clone(stop))?;
    let line = heard.recv().map_err(|_| failed(ENDED.to_owned()))?;
    let lead: Lead = serde_json::from_str(&line).map_err(|error| failed(error.to_string()))?;
    let experiment = Experiment::from_toml(&lead.experiment).map_err(|error| failed(error.to_string()))?;
    let _watching = Watching::start(&own.program)?;
    // For the record, which goes to the other side line by line; it goes with its unit.
    let unit = home.claim()?;
    let record = unit.dir().join("race.jsonl");
    let result = raced(lead, experiment, (own, home, stop), &record, heard, output);
    let removed = if record.exists() {
        std::fs::remove_file(&record).map_err(LabError::file("remove", &record))
    } else {
        Ok(())
    };
    let ended = removed.and_then(|()| Ok(unit.end()?));
    result.and_then(|finished| ended.map(|()| finished))
}

fn raced(
    lead: Lead,
    experiment: Experiment,
    (own, home, stop): (&OwnProgram, &Home, &Arc<AtomicBool>),
    record: &Path,
    heard: Receiver<String>,
    output: &Output,
) -> Result<Finished, LabError> {
    let facts = linux::features::probe()?;
    let nic = lead.nic.as_deref().map(linux::IfName::new).transpose();
    let nic = nic.map_err(|error| failed(error.to_string()))?;
    let cpus = granted(lead.cpus.clone(), "client")?;
    let scheduling = if linux::cpu::can_realtime() { lead.scheduling } else { Scheduling::Normal };
    let mut outward = Outward::new(record);
    // That the listener is gone shows in the end of the input.
    let mut emit = |event: Event| drop(outward.emit(&event, &mut *held(output)));
    let machines = Arc::new(others(lead, &experiment, scheduling, nic.as_ref(), (heard, output, stop))?);
    let options = RaceOptions {
        record: record.to_owned(),
        nginx: None,
        own: own.clone(),
        plugins: PluginDirs::default(),
        cpus,
        scheduling,
        machines: Some(Arc::clone(&machines)),
        guest: None,
        stop: Arc::clone(stop),
    };
    let result =
        Race::prepare(experiment, options, &facts, home.clone()).and_then(|race| race.run(&mut emit));
    let ended = machines.end();
    // What the last event came before. The other side has what it has.
    let _ = outward.lines(&mut *held(output));
    result.and_then(|finished| ended.map(|()| finished))
}

/// Takes the other machines for the race.
fn others(
    lead: Lead,
    experiment: &Experiment,
    scheduling: Scheduling,
    nic: Option<&linux::IfName>,
    (heard, output, stop): (Receiver<String>, &Output, &Arc<AtomicBool>),
) -> Result<Machines, LabError> {
    let Lead { server, clients, cpus, server_cpus, scheduling: asked, .. } = lead;
    let mut relayed = shared_out(heard, 1 + clients.len(), output)?.into_iter();
    let mut next = || relayed.next().expect("there is one for each machine");
    let server = Remote::over(server, Box::new(next()), experiment, (server_cpus, scheduling), nic)?;
    let mut machines = Machines::with_server(server, stop);
    // Whether a policy is permitted is said by each machine.
    let begin = machines.begin(experiment, 1 + clients.len(), (cpus, asked));
    for name in clients {
        let way = next();
        let again = way.clone();
        let reach = Box::new(move || again.again().map(|way| Some(Box::new(way) as Box<dyn Conversation>)));
        machines.add(RemoteClient::over(name, Box::new(way), begin.clone(), reach)?);
    }
    Ok(machines)
}

/// A way to each of so many machines, by what the other side says and hears.
fn shared_out(heard: Receiver<String>, machines: usize, output: &Output) -> Result<Vec<Relayed>, LabError> {
    let (senders, ways): (Vec<_>, Vec<_>) = (0..machines)
        .map(|number| {
            let (send, from) = mpsc::channel();
            (send, Relayed { number, to: Arc::clone(output), from: Arc::new(Mutex::new(from)) })
        })
        .unzip();
    let share_out = move || {
        for line in heard {
            let answer = line.split_once(' ');
            let answer = answer.and_then(|(number, answer)| Some((number.parse::<usize>().ok()?, answer)));
            if let Some((number, answer)) = answer
                && let Some(send) = senders.get(number)
            {
                // One that nobody waits for any more is no loss.
                let _ = send.send(answer.to_owned());
            }
        }
    };
    let started = LabError::file("start a thread of", Path::new("hostgap remote"));
    thread::Builder::new().name("ways".to_owned()).spawn(share_out).map_err(started)?;
    Ok(ways)
}

/// Another machine, by way of the other side.
#[derive(Clone)]
struct Relayed {
    number: usize,
    to: Output,
    from: Arc<Mutex<Receiver<String>>>,
}

impl Relayed {
    fn line(&self, words: fmt::Arguments<'_>) -> Result<(), String> {
        let mut to = held(&self.to);
        let sent = writeln!(to, "{words}").and_then(|()| to.flush());
        sent.map_err(|_| ENDED.to_owned())
    }

    /// What the other side says of it next.
    fn answer(&self, limit: Duration) -> Result<String, String> {
        held(&self.from).recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => silent(limit),
            RecvTimeoutError::Disconnected => ENDED.to_owned(),
        })
    }

    /// The way to a process there that was started anew.
    fn again(&self) -> Result<Relayed, LabError> {
        let deadline = Instant::now() + ANSWER_MAX;
        let started = self.line(format_args!("{AGAIN}{}", self.number)).and_then(|()| {
            loop {
                let answer = self.answer(deadline.saturating_duration_since(Instant::now()))?;
                if answer == STARTED {
                    return Ok(());
                }
                if let Some(why) = answer.strip_prefix(NOT_STARTED) {
                    return Err(why.to_owned());
                }
                // It answers what was asked before.
            }
        });
        match started {
            Ok(()) => Ok(self.clone()),
            Err(why) => Err(LabError::of_machine(String::new(), why)),
        }
    }
}

impl fmt::Debug for Relayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relayed")
    }
}

impl Conversation for Relayed {
    fn say(&self, line: &str) -> Result<(), String> {
        self.line(format_args!("{ASK}{} {line}", self.number))
    }

    fn hear(&self, limit: Duration) -> Result<String, String> {
        let answer = self.answer(limit)?;
        match answer.strip_prefix(LOST) {
            Some(why) => Err(why.to_owned()),
            None => Ok(answer),
        }
    }

    /// The other side ends the process there when this one has ended, and says what became of it.
    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The words where the other side is gone.
const ENDED: &str = "the connection has ended";

fn failed(why: String) -> LabError {
    LabError::Experiment { what: "the race that this machine is to lead".to_owned(), why }
}

/// Reads answers; an end of the input, a long silence, and the word for it end the race.
pub(crate) fn answers(
    input: impl Read + Send + 'static,
    stop: Arc<AtomicBool>,
) -> Result<Receiver<String>, LabError> {
    let started = LabError::file("start a thread of", Path::new("hostgap remote"));
    let lines = lines(input).map_err(started)?;
    let (send, answers) = mpsc::channel();
    let pass_on = move || {
        while let Ok(Ok(line)) = lines.recv_timeout(SILENCE_MAX) {
            if line == STOP {
                stop.store(true, Ordering::Relaxed);
            } else if !line.is_empty() && send.send(line).is_err() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    };
    let started = LabError::file("start a thread of", Path::new("hostgap remote"));
    thread::Builder::new().name("answers".to_owned()).spawn(pass_on).map_err(started)?;
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_once_where_it_was() {
        let why = || "take the machine for a race: another race has it".to_owned();
        let there = LabError::Machine {
            machine: "ssh://b".into(),
            why: why(),
            remedy: Some("wait".into()),
            fault: Fault::Failure,
        };
        assert_eq!(LeadFailed::from(&there).into_error(&"ssh://a").to_string(), there.to_string());
        let no_cpu = LabError::not_there("ssh://b".into(), "CPU 7".into());
        let passed_on = LeadFailed::from(&no_cpu).into_error(&"ssh://a");
        assert_eq!((passed_on.fault(), passed_on.to_string()), (Fault::Input, no_cpu.to_string()));
        let here = LeadFailed::from(&LabError::Busy { pid: 7 });
        assert_eq!((here.machine, here.why.contains("process 7")), (None, true));
        assert_eq!(here.remedy.as_deref(), Some("try again when it has ended"));
    }

    #[test]
    fn a_failure_is_of_one_kind_wherever_the_race_ran() {
        let lacks = LabError::CannotRun { path: "ovs".into(), reasons: "no switch".into() };
        let asked = LabError::Experiment { what: "a rate".into(), why: "it is too high".into() };
        for (error, fault) in [(lacks, Fault::Lack), (asked, Fault::Input)] {
            let words = serde_json::to_string(&LeadFailed::from(&error)).unwrap();
            let failed: LeadFailed = serde_json::from_str(&words).unwrap();
            assert_eq!((error.fault(), failed.into_error(&"ssh://a").fault()), (fault, fault), "{words}");
        }
    }
}
