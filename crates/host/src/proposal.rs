//! What would change: the requested settings, compared with the host.

use std::path::Path;

use ipnet::IpNet;
use linux::ethtool::NicParameter;
use linux::latency::{self, LatencyLimit};
use plan::{Kernel, Placed, Plan, Preview, Set, Step, StepError};
use tune::{Lives, Setting, Site, WantedSetting};

use crate::obstacle::too_young;
use crate::{Change, Conflict, Host, HostError, RequestedSetting, Skipped, TuningRequest, managers};

/// What would change, and what would not.
#[expect(missing_docs, reason = "the names say it")]
pub struct Proposal {
    pub host: Host,
    /// In the order in which they are made.
    pub changes: Vec<Change>,
    /// Settings whose steps are known only after the others: for example, a driver makes new interrupts for a new
    /// number of queues.
    pub later: Vec<RequestedSetting>,
    /// Settings that already have their value.
    pub already: Vec<WantedSetting>,
    /// Settings that are impossible here, and why.
    pub skipped: Vec<Skipped>,
    /// What else sets the same.
    pub conflicts: Vec<Conflict>,
}

/// The outcome for a requested setting.
enum SettingOutcome {
    Change(Change),
    Already,
    Impossible(String),
}

impl Proposal {
    /// Compares the requested settings with the host. Changes nothing. It needs the right to administer the network.
    ///
    /// # Errors
    /// Those of [`TuningRequest::wishes`] and [`Proposal::of_wishes`].
    pub fn of(request: &TuningRequest) -> Result<Proposal, HostError> {
        let wishes = request.wishes()?;
        let mut proposal =
            Proposal::of_wishes(request.netns.as_deref(), wishes.device.as_deref(), &wishes.wishes)?;
        proposal.skipped.extend(wishes.left_out);
        Ok(proposal)
    }

    /// The same for settings that were read elsewhere.
    ///
    /// # Errors
    /// Those of [`Host::look`]. [`HostError::BadRequest`]: a setting that the user named is impossible here.
    pub fn of_wishes(
        netns: Option<&str>,
        device: Option<&str>,
        wishes: &[RequestedSetting],
    ) -> Result<Proposal, HostError> {
        let host = Host::look(netns, device)?;
        let mut proposal = Proposal {
            host,
            changes: vec![],
            later: vec![],
            already: vec![],
            skipped: vec![],
            conflicts: vec![],
        };
        let mut kernel = Kernel::new()?.keeping_announced_routes();
        for wish in wishes {
            let setting = wish.wanted.setting.clone();
            if setting.lives == Lives::Interrupts && proposal.makes_queues() {
                proposal.later.push(wish.clone());
                continue;
            }
            if let (Lives::Route(_), None, false) =
                (setting.lives, wish.wanted.route, proposal.host.announced.is_empty())
            {
                let all: Vec<String> = proposal.host.announced.iter().map(IpNet::to_string).collect();
                let why = format!(
                    "the route to {} was announced by a router, and would lose its expiry time",
                    all.join(", ")
                );
                proposal.skipped.push(Skipped::of(&setting, why));
            }
            let passes_over = matches!(setting.lives, Lives::Route(_)) && wish.wanted.route.is_none();
            if passes_over && !proposal.host.site.routes.is_empty() && !proposal.host.shared.is_empty() {
                let why = crate::obstacle::several_lead_to(&proposal.host.shared);
                proposal.skipped.push(Skipped::of(&setting, why));
            }
            match proposal.settle(wish, &mut kernel)? {
                SettingOutcome::Change(change) => proposal.add(change),
                SettingOutcome::Already => proposal.already.push(wish.wanted.clone()),
                SettingOutcome::Impossible(why) if wish.is_named => {
                    let text = format!("{} cannot be set to {} here: {why}", setting.knob.id, setting.value);
                    return Err(HostError::BadRequest(text));
                }
                SettingOutcome::Impossible(why) => proposal.skipped.push(Skipped::of(&setting, why)),
            }
        }
        proposal.conflicts = managers::conflicts(Path::new("/"), &proposal.changes);
        Ok(proposal)
    }

    /// All steps in order.
    pub fn plan(&self) -> Plan {
        let steps =
            self.changes.iter().flat_map(|change| change.steps.iter().map(|(placed, _)| placed.clone()));
        Plan { steps: steps.collect() }
    }

    /// The limit on the latency of CPUs to hold, in microseconds. It is held even if another process holds one as low
    /// now, which may release it at any time.
    pub fn cpu_latency_us(&self) -> Option<u32> {
        let mut wanted = self.changes.iter().map(|change| &change.wanted).chain(&self.already);
        wanted.find_map(|wanted| wanted.setting.cpu_latency_us())
    }

    /// Later steps use the new number of queues.
    fn add(&mut self, change: Change) {
        for (placed, _) in &change.steps {
            if let Some(queues) = new_queues(&placed.step) {
                let queues = u16::try_from(queues).unwrap_or(u16::MAX);
                (self.host.site.nic.rx, self.host.site.nic.tx) = (queues, queues);
            }
        }
        self.changes.push(change);
    }

    fn settle(
        &self,
        RequestedSetting { wanted, is_named }: &RequestedSetting,
        kernel: &mut Kernel,
    ) -> Result<SettingOutcome, linux::Error> {
        if let Some(why) = self.host.obstacle(&wanted.setting, &self.changes)? {
            return Ok(SettingOutcome::Impossible(why));
        }
        if let Some(limit_us) = wanted.setting.cpu_latency_us() {
            return latency(wanted, limit_us);
        }
        let setting = wanted.setting.clone();
        let site = self.host.site_for(&setting, wanted.route);
        let steps = self.look(&setting, &site, kernel).and_then(|steps| {
            let kept = steps.into_iter().enumerate();
            kept.map(|(at, step)| {
                // The value may be larger already on one queue or route and not on another.
                let held = wanted.against(&step.1.old);
                if held == setting { Ok(step) } else { Ok(self.look(&held, &site, kernel)?.swap_remove(at)) }
            })
            .collect()
        });
        let mut steps: Vec<(Placed, Preview)> = match steps {
            Ok(steps) => steps,
            Err(why) => return Ok(SettingOutcome::Impossible(why)),
        };
        if steps.is_empty() {
            return Ok(SettingOutcome::Impossible(self.host.nowhere(&setting, wanted.route)));
        }
        steps.retain(|(_, preview)| !preview.is_so);
        if steps.is_empty() {
            return Ok(SettingOutcome::Already);
        }
        if setting.lives == Lives::RootQdisc && !is_named && self.host.has_queues_of_their_own()? {
            let why = format!(
                "each of the {} send queues of {} has a discipline of its own (mq), and a single one would have a single lock: \
                 default_qdisc is what they get when the link is made",
                self.host.site.nic.tx, self.host.site.wire
            );
            return Ok(SettingOutcome::Impossible(why));
        }
        Ok(SettingOutcome::Change(Change { wanted: wanted.clone(), steps, held: None }))
    }

    /// Each step with its old and new value, or why it is impossible.
    fn look(
        &self,
        setting: &Setting,
        site: &Site,
        kernel: &mut Kernel,
    ) -> Result<Vec<(Placed, Preview)>, String> {
        let mut steps = Vec::new();
        for placed in setting.plan(site).steps {
            match plan::preview(&placed, kernel) {
                Ok(Some(preview)) => steps.push((placed, preview)),
                Ok(None) => unreachable!("settings become steps that set something"),
                Err(StepError::Kernel(error)) if error.is(2) && self.is_to_come(&placed.step) => {
                    let new = "as planned".to_owned();
                    let old = "a queue that does not exist yet".to_owned();
                    steps.push((placed, Preview { old, new, index: None, is_so: false }));
                }
                Err(error) => return Err(too_young(setting, &error).unwrap_or_else(|| error.to_string())),
            }
        }
        Ok(steps)
    }

    /// Whether a step is for a queue that an earlier one makes.
    fn is_to_come(&self, step: &Step) -> bool {
        matches!(step, Step::Set(Set::QueueCpus(_) | Set::QueueFlows(_))) && self.makes_queues()
    }

    /// Whether there will be another number of queues.
    fn makes_queues(&self) -> bool {
        let makes = |(placed, _): &(Placed, Preview)| new_queues(&placed.step).is_some();
        self.changes.iter().any(|change| change.steps.iter().any(makes))
    }
}

/// The number of queues that a step makes, if it makes any.
fn new_queues(step: &Step) -> Option<u32> {
    match step {
        Step::Set(Set::Nic(set)) if set.parameter == NicParameter::Channels => Some(set.value),
        _ => None,
    }
}

/// Compares a limit on the latency of CPUs with the one in force now.
fn latency(wanted: &WantedSetting, limit_us: u32) -> Result<SettingOutcome, linux::Error> {
    let old = match latency::limit()? {
        LatencyLimit::Unknown => {
            return Ok(SettingOutcome::Impossible("this kernel has no /dev/cpu_dma_latency".to_owned()));
        }
        LatencyLimit::Micros(now) if now <= limit_us => return Ok(SettingOutcome::Already),
        LatencyLimit::Micros(now) => now.to_string(),
        LatencyLimit::None => "no limit".to_owned(),
    };
    let held = Some((old, limit_us.to_string()));
    Ok(SettingOutcome::Change(Change { wanted: wanted.clone(), steps: Vec::new(), held }))
}
