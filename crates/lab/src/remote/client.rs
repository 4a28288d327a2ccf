//! A machine that loads the server beside the one that leads the race, as the leading one sees it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linux::features::Facts;
use record::{Machine, Void};

use super::asked::Asked;
use super::order::Order;
use super::protocol::{BeginClient, ClientCounterpart, RemoteRequest, Reply};
use super::ssh::{SshAddress, SshCommand};
use crate::channel::{Conversation, held};
use crate::part::{ClockAhead, LoadPart, LoadedPart, monotonic_ns};
use crate::shape::MachineLink;
use crate::{Event, LabError, OwnProgram};

/// How long it is tried to reach a machine again whose process was lost. One that was cut off holds its machine
/// for half a minute.
const AGAIN_MAX: Duration = Duration::from_secs(45);
/// The pause between two attempts.
const AGAIN: Duration = Duration::from_secs(1);

/// Starts the process there; `None` if asked to stop before.
pub(crate) type Reach = Box<dyn Fn() -> Result<Option<Box<dyn Conversation>>, LabError> + Send + Sync>;

/// A machine with a client. Dropping it ends the process there, which undoes everything.
pub(crate) struct RemoteClient {
    asked: Asked,
    begin: BeginClient,
    counterpart: ClientCounterpart,
    reach: Reach,
    half: Mutex<Half>,
}

/// What it is to have, and whether it does.
#[derive(Debug, Default)]
struct Half {
    order: Option<Order>,
    stands: bool,
    /// As of the last trial.
    clock_ahead: ClockAhead,
}

impl fmt::Debug for RemoteClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteClient").field(&self.asked).finish()
    }
}

impl RemoteClient {
    /// Connects, copies this program there unless it is there already, and takes the machine for a race; `None` if
    /// asked to stop before.
    ///
    /// # Errors
    /// [`LabError::Machine`]: it is not reached, is another kind of machine, has a race already, permits too little, or
    /// there is no way from it to the server; or it does not have what it was asked for.
    pub(super) fn connect(
        address: &SshAddress,
        ssh: &SshCommand,
        own: &OwnProgram,
        begin: BeginClient,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Option<RemoteClient>, LabError> {
        let name = address.to_string();
        emit(Event::Connecting { machine: name.clone() });
        let (address, ssh, own) = (address.clone(), ssh.clone(), own.clone());
        let reach = move || {
            let channel = ssh.start(&address, &own, "remote")?;
            Ok(channel.map(|channel| Box::new(channel) as Box<dyn Conversation>))
        };
        let Some(channel) = reach()? else { return Ok(None) };
        RemoteClient::over(name, channel, begin, Box::new(reach)).map(Some)
    }

    /// The same where a conversation with the process there has begun.
    pub(crate) fn over(
        name: String,
        channel: Box<dyn Conversation>,
        begin: BeginClient,
        reach: Reach,
    ) -> Result<RemoteClient, LabError> {
        let asked = Asked::new(name, channel);
        let counterpart = taken(&asked, &begin)?;
        Ok(RemoteClient { asked, begin, counterpart, reach, half: Mutex::default() })
    }

    /// Its address, as the user wrote it.
    pub(super) fn name(&self) -> &str {
        self.asked.name()
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.counterpart.machine
    }

    /// What its kernel can do.
    pub(super) fn facts(&self) -> &Facts {
        &self.counterpart.facts
    }

    /// Its link to the server's machine.
    pub(super) fn link(&self) -> &MachineLink {
        &self.counterpart.link
    }

    /// The router between it and the server's machine.
    pub(super) fn router(&self) -> Option<IpAddr> {
        self.counterpart.router
    }

    /// Why it cannot have the settings of its half, in words.
    pub(super) fn unmet(&self, order: &Order) -> Result<Vec<String>, LabError> {
        self.asked.unmet(order)
    }

    /// What it is to build from now on.
    pub(super) fn expect(&self, order: Order) {
        *held(&self.half) = Half { order: Some(order), ..Half::default() };
    }

    /// Whether it has what it is to have.
    pub(super) fn stands(&self) -> bool {
        let half = held(&self.half);
        half.order.is_none() || (half.stands && !self.asked.is_lost())
    }

    /// Tells it to build its half and to open its connections. Where its process was lost another one is started.
    ///
    /// # Errors
    /// The machine cannot be reached again.
    pub(super) fn tell_order(&self, stop: &AtomicBool) -> Result<(), LabError> {
        if self.asked.is_lost() {
            self.reach_again(stop)?;
        }
        let mut half = held(&self.half);
        half.stands = false;
        let order = half.order.clone().expect("what does not stand has an order");
        self.asked.tell(&RemoteRequest::Stand(Box::new(order)));
        Ok(())
    }

    /// Waits until that is done.
    ///
    /// # Errors
    /// [`LabError::Broken`]: the candidate cannot stand there; [`LabError::ClientLost`]: the machine did not do it.
    pub(super) fn await_order(&self, candidate: &str) -> Result<(), LabError> {
        self.asked.told_done(candidate).map_err(|error| self.lost(error))?;
        held(&self.half).stands = true;
        Ok(())
    }

    fn reach_again(&self, stop: &AtomicBool) -> Result<(), LabError> {
        let deadline = Instant::now() + AGAIN_MAX;
        loop {
            let again = (self.reach)().and_then(|channel| channel.map(|it| self.resume(it)).transpose());
            let why = match again {
                Ok(Some(())) => return Ok(()),
                Ok(None) => return Err(self.gone("the race is to end".to_owned())),
                Err(LabError::Machine { why, .. }) => why,
                Err(error) => error.to_string(),
            };
            self.asked.lose(&why);
            if stop.load(Ordering::Relaxed) {
                return Err(self.gone(why));
            }
            if Instant::now() >= deadline {
                return Err(self.asked.failed(why));
            }
            thread::sleep(AGAIN);
        }
    }

    /// Goes on with a process that was started anew, on a machine that is as it was.
    fn resume(&self, channel: Box<dyn Conversation>) -> Result<(), LabError> {
        self.asked.resume(channel);
        let counterpart = taken(&self.asked, &self.begin)?;
        if is_as_before(&self.counterpart.link, &counterpart.link, self.begin.workload.ipv6) {
            return Ok(());
        }
        Err(self.asked.failed("its link to the server is not what it was before".to_owned()))
    }

    /// Lets it begin its part of a slice.
    pub(super) fn begin_load(&self, candidate: &str, part: LoadPart) {
        self.asked.tell(&RemoteRequest::Load { candidate: candidate.to_owned(), part: Box::new(part) });
    }

    /// What came of its part. A trial that does not count there says where.
    ///
    /// # Errors
    /// [`LabError::Broken`]: the candidate does not answer there; [`LabError::ClientLost`]: the machine did not do it.
    pub(super) fn loaded(&self, candidate: &str) -> Result<LoadedPart, LabError> {
        let mut part = match self.asked.told(candidate).map_err(|error| self.lost(error))? {
            Reply::Loaded(part) => *part,
            other => return Err(self.lost(self.asked.strange(&other))),
        };
        part.began = part.began.by(held(&self.half).clock_ahead);
        if let Some(trial) = &mut part.trial {
            let machine = self.name().to_owned();
            trial.void = trial.void.take().map(|why| Void::OnClient { machine, why: Box::new(why) });
        }
        Ok(part)
    }

    /// Compares its clock with this machine's, while nothing is loaded: clocks drift apart, so before each trial.
    ///
    /// # Errors
    /// [`LabError::ClientLost`].
    pub(super) fn compare_clocks(&self, candidate: &str) -> Result<(), LabError> {
        let request = RemoteRequest::Clock { candidate: candidate.to_owned() };
        let asked_ns = monotonic_ns();
        match self.asked.ask(&request).map_err(|error| self.lost(error))? {
            Reply::Clock(theirs_ns) => {
                held(&self.half).clock_ahead = ClockAhead::of(theirs_ns, (asked_ns, monotonic_ns()));
                Ok(())
            }
            other => Err(self.lost(self.asked.strange(&other))),
        }
    }

    /// Lets it look at its counters.
    pub(super) fn begin_count(&self, candidate: &str) {
        self.asked.tell(&RemoteRequest::Count { candidate: candidate.to_owned() });
    }

    /// Waits until it has.
    ///
    /// # Errors
    /// [`LabError::ClientLost`].
    pub(super) fn counted(&self, candidate: &str) -> Result<(), LabError> {
        self.asked.told_done(candidate).map_err(|error| self.lost(error))
    }

    /// What has changed of its half since it was built; `None` also of one that is lost, which says
    /// nothing of the path.
    pub(super) fn check(&self, candidate: &str) -> Option<String> {
        if !held(&self.half).stands || self.asked.is_lost() {
            return None;
        }
        let asked = self.asked.ask(&RemoteRequest::Check { candidate: candidate.to_owned() });
        let changed = asked.and_then(|reply| match reply {
            Reply::Changed(what) => Ok(what),
            other => Err(self.asked.strange(&other)),
        });
        // That it is lost now is said when it is to do its next part.
        let what = changed.map_err(|error| self.lost(error)).ok()??;
        Some(format!("on {}: {what}", self.name()))
    }

    /// Lets it undo its half.
    pub(super) fn begin_take_down(&self, candidate: &str) {
        if held(&self.half).stands {
            self.asked.tell(&RemoteRequest::TakeDown { candidate: candidate.to_owned() });
        }
    }

    /// Waits until it has, but for what is returned. One that is lost does that by itself.
    ///
    /// # Errors
    /// Something could not be undone there.
    pub(super) fn taken_down(&self, candidate: &str) -> Result<Vec<String>, LabError> {
        let has_half = held(&self.half).stands;
        *held(&self.half) = Half::default();
        if !has_half {
            return Ok(Vec::new());
        }
        let told = self.asked.told_left(candidate);
        if self.asked.is_lost() { Ok(Vec::new()) } else { told }
    }

    /// Ends the process there.
    ///
    /// # Errors
    /// Something could not be undone there.
    pub(super) fn end(&self) -> Result<(), LabError> {
        if self.asked.is_lost() { Ok(()) } else { self.asked.end() }
    }

    /// A candidate's own failure; anything else ends the process there, so that what it has built goes, and another is
    /// started for the next trial.
    fn lost(&self, error: LabError) -> LabError {
        let why = match error {
            broken @ LabError::Broken { .. } => return broken,
            LabError::Machine { why, .. } => why,
            other => other.to_string(),
        };
        if !self.asked.is_lost() {
            self.asked.lose(&why);
        }
        self.gone(why)
    }

    fn gone(&self, why: String) -> LabError {
        LabError::ClientLost { machine: self.name().to_owned(), why }
    }
}

/// Whether a link is what plans were made for. Its offloads may be others since a path has stood on it, and temporary
/// addresses come and go.
fn is_as_before(before: &MachineLink, now: &MachineLink, ipv6: bool) -> bool {
    let used = |link: &MachineLink| link.addresses.iter().find(|address| address.is_ipv6() == ipv6).copied();
    (&before.name, before.mtu, used(before)) == (&now.name, now.mtu, used(now))
}

/// Takes the machine for a race.
fn taken(asked: &Asked, begin: &BeginClient) -> Result<ClientCounterpart, LabError> {
    match asked.begun(&RemoteRequest::BeginClient(Box::new(begin.clone())))? {
        Reply::BegunClient(counterpart) => Ok(*counterpart),
        other => Err(asked.strange(&other)),
    }
}
