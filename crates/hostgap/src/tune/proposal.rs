//! What would change: the requested settings, compared with the host.

use ::tune::{Lives, QueueFile, Setting, Since, Site, Value, Wanted};
use ipnet::IpNet;
use linux::ethtool::NicParameter;
use linux::latency::{self, Limit};
use linux::netlink::RouteMetric;
use linux::{Netlink, Netns, sysctl};
use plan::{ApplyError, Kernel, Place, Placed, Plan, Preview, Set, Step, StepError};

use super::bounds;
use super::host::Host;
use super::managers::{self, Conflict};
use super::request::{Request, RequestArgs};
use super::tracking;
use crate::exit::{BadInput, Unprivileged};

const NO_LINK: &str = "there is no default route to find the link by: name the link with --dev";

/// What would change, and what would not.
pub(super) struct Proposal {
    pub(super) host: Host,
    /// In the order in which they are made.
    pub(super) changes: Vec<Change>,
    /// Settings whose steps are known only after the others: for example, a driver makes new interrupts for a new
    /// number of queues.
    pub(super) later: Vec<Request>,
    /// Settings that already have their value.
    pub(super) already: Vec<Wanted>,
    /// Settings that are impossible here, and why.
    pub(super) skipped: Vec<(Setting, String)>,
    pub(super) conflicts: Vec<Conflict>,
}

/// A setting to be made.
pub(super) struct Change {
    pub(super) wanted: Wanted,
    /// Each step with its old and new value, except those that would change nothing.
    pub(super) steps: Vec<(Placed, Preview)>,
    /// For a limit that a process holds, which has no steps: the old and the new value.
    pub(super) held: Option<(String, String)>,
}

/// The outcome for a requested setting.
enum Outcome {
    Change(Change),
    Already,
    Impossible(String),
}

impl Proposal {
    /// Compares the requested settings with the host. Changes nothing.
    pub(super) fn of(asked: &RequestArgs) -> anyhow::Result<Proposal> {
        linux::process::require_network_admin().map_err(Unprivileged)?;
        let wishes = asked.wishes()?;
        let mut proposal =
            Proposal::of_wishes(asked.netns.as_deref(), wishes.device.as_deref(), &wishes.wishes)?;
        proposal.skipped.extend(wishes.left_out);
        Ok(proposal)
    }

    /// The same for settings that were read elsewhere.
    pub(super) fn of_wishes(
        netns: Option<&str>,
        device: Option<&str>,
        wishes: &[Request],
    ) -> anyhow::Result<Proposal> {
        let host = Host::look(netns, device)?;
        let mut proposal = Proposal {
            host,
            changes: vec![],
            later: vec![],
            already: vec![],
            skipped: vec![],
            conflicts: vec![],
        };
        let mut kernel = Kernel::new()?;
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
                proposal.skipped.push((setting.clone(), why));
            }
            match proposal.settle(wish, &mut kernel)? {
                Outcome::Change(change) => proposal.add(change),
                Outcome::Already => proposal.already.push(wish.wanted.clone()),
                Outcome::Impossible(why) if wish.is_named => {
                    let text = format!("{} cannot be set to {} here: {why}", setting.knob.id, setting.value);
                    return Err(BadInput(text).into());
                }
                Outcome::Impossible(why) => proposal.skipped.push((setting, why)),
            }
        }
        proposal.conflicts = managers::conflicts(std::path::Path::new("/"), &proposal.changes);
        Ok(proposal)
    }

    /// All steps in order.
    pub(super) fn plan(&self) -> Plan {
        let steps =
            self.changes.iter().flat_map(|change| change.steps.iter().map(|(placed, _)| placed.clone()));
        Plan { steps: steps.collect() }
    }

    /// The limit on the latency of CPUs to hold. It is held even if another process holds one as low now, which may
    /// release it at any time.
    pub(super) fn cpu_latency_us(&self) -> Option<u32> {
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

    fn settle(&self, Request { wanted, is_named }: &Request, kernel: &mut Kernel) -> anyhow::Result<Outcome> {
        if let Some(why) = self.obstacle(&wanted.setting)? {
            return Ok(Outcome::Impossible(why));
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
            Err(why) => return Ok(Outcome::Impossible(why)),
        };
        if steps.is_empty() {
            return Ok(Outcome::Impossible(self.nowhere(&setting, wanted.route)));
        }
        steps.retain(|(_, preview)| !preview.is_so);
        if steps.is_empty() {
            return Ok(Outcome::Already);
        }
        if setting.lives == Lives::RootQdisc && !is_named && self.has_queues_of_their_own()? {
            let why = format!(
                "each of the {} send queues of {} has a discipline of its own (mq), and a single one would have a single lock: \
                 default_qdisc is what they get when the link is made",
                self.host.site.nic.tx, self.host.site.wire
            );
            return Ok(Outcome::Impossible(why));
        }
        Ok(Outcome::Change(Change { wanted: wanted.clone(), steps, held: None }))
    }

    /// Why a setting makes no sense here, even if the kernel accepts it.
    fn obstacle(&self, setting: &Setting) -> anyhow::Result<Option<String>> {
        let here = Since::of_release(&linux::features::release());
        if let Some(until) = setting.knob.until.filter(|until| here.is_some_and(|here| here >= *until)) {
            return Ok(Some(format!("it has no effect on kernels from {until}")));
        }
        if let Some(why) = bounds::beyond(setting, &self.host)? {
            return Ok(Some(why));
        }
        Ok(match setting.lives {
            Lives::Machine(_) | Lives::Debug(_) | Lives::Module(_) | Lives::CpuLatency
                if self.host.netns.is_some() =>
            {
                Some("the whole machine shares it: set it without --netns".to_owned())
            }
            Lives::Sysctl("net/ipv4/tcp_congestion_control") => {
                self.lacks_default(&setting.value.to_string())?
            }
            Lives::Sysctl(_)
            | Lives::Machine(_)
            | Lives::Debug(_)
            | Lives::Module(_)
            | Lives::CpuLatency
            | Lives::Nowhere { .. } => None,
            Lives::Notrack => match &self.host.netns {
                Some(name) => tracking::who_asks(&Netns::open(name)?)?,
                None => tracking::who_asks(&Netns::current()?)?,
            },
            Lives::RootQdisc => self.lacks_qdisc(setting)?,
            Lives::Queue(QueueFile::RpsFlows) => self.lacks_flows(setting)?,
            _ if self.host.device.is_none() => Some(NO_LINK.to_owned()),
            // The kernel looks the algorithm up when the route is made, which would be in the middle of `apply`.
            Lives::Route(RouteMetric::CongestionControl) => lacks_algorithm(&setting.value.to_string())?,
            _ => None,
        })
    }

    /// Why a namespace cannot have this algorithm as its default: outside the first namespace the kernel permits only
    /// those that it allows to all users.
    fn lacks_default(&self, name: &str) -> anyhow::Result<Option<String>> {
        if let Some(why) = lacks_algorithm(name)? {
            return Ok(Some(why));
        }
        let is_allowed =
            self.host.netns.is_none() || is_listed(name, "net/ipv4/tcp_allowed_congestion_control")?;
        Ok((!is_allowed).then(|| {
            format!("the machine does not allow {name} in namespaces; the knob congctl sets it on a route")
        }))
    }

    /// Whether the link has a discipline for each of its send queues, as the kernel makes for cards with several.
    fn has_queues_of_their_own(&self) -> anyhow::Result<bool> {
        let netns = self.host.netns.as_ref().map_or_else(Netns::current, Netns::open)?;
        let qdiscs = Netlink::open_in(&netns)?.qdisc_counters()?;
        let index = self.host.device.as_ref().map(|device| device.index);
        Ok(qdiscs.iter().any(|qdisc| Some(qdisc.index) == index && qdisc.kind == "mq"))
    }

    /// A queue's part of RFS has no effect without the machine's flow table.
    fn lacks_flows(&self, setting: &Setting) -> anyhow::Result<Option<String>> {
        if self.host.device.is_none() {
            return Ok(Some(NO_LINK.to_owned()));
        }
        let makes_table = |change: &Change| change.wanted.setting.knob.id == "rps_sock_flow_entries";
        if setting.value == Value::Number(0) || self.changes.iter().any(makes_table) {
            return Ok(None);
        }
        // It is visible only in the machine's first namespace.
        let key = sysctl::Key::new("net/core/rps_sock_flow_entries").expect("a constant key is a path");
        let is_off = sysctl::read(&key)?.is_some_and(|entries| entries.trim() == "0");
        let how = if self.host.netns.is_some() { ", without --netns" } else { "" };
        Ok(is_off.then(|| {
            format!("it has no effect without the machine's flow table: set rps_sock_flow_entries first{how}")
        }))
    }

    /// Whether the kernel has a queueing discipline. The test makes one, on the loopback of a temporary namespace.
    fn lacks_qdisc(&self, setting: &Setting) -> anyhow::Result<Option<String>> {
        if self.host.device.is_none() {
            return Ok(Some(NO_LINK.to_owned()));
        }
        let lo = linux::IfName::new("lo").expect("a constant name is valid");
        let site = Site { node: Place::Host, wire: lo, ..self.host.site.clone() };
        let tried = Netns::anonymous()?.run(|| {
            let mut kernel = Kernel::new()?;
            let steps = setting.plan(&site).steps;
            Ok::<_, linux::Error>(steps.iter().try_for_each(|placed| plan::by_hand(placed, &mut kernel)))
        })??;
        Ok(tried.err().map(|error| match error {
            ApplyError::Step { why, .. } => why.to_string(),
            other => other.to_string(),
        }))
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

    /// Why a setting became no step.
    fn nowhere(&self, setting: &Setting, route: Option<IpNet>) -> String {
        let link = &self.host.site.wire;
        match (setting.lives, route) {
            (Lives::Route(_), Some(route)) if self.host.announced.contains(&route) => {
                format!(
                    "a router announced the route to {route}: its settings are lost with the next announcement"
                )
            }
            (Lives::Route(_), Some(route)) => {
                format!("no route to {route} leads over {link}; `ip route add {route} …` makes one")
            }
            (Lives::Route(RouteMetric::RtoMin), None) if !self.host.site.routes.is_empty() => {
                format!(
                    "only the default route leads over {link}, which is not suitable for this: name a destination with --route"
                )
            }
            (Lives::Route(_), None) => format!("no route leads over {link}"),
            (Lives::Interrupts, _) => format!("{link} has no interrupts of its own"),
            _ => format!("{link} has nothing to set it on"),
        }
    }
}

/// The number of queues that a step makes, if it makes any.
fn new_queues(step: &Step) -> Option<u32> {
    match step {
        Step::Set(Set::Nic(set)) if set.parameter == NicParameter::Channels => Some(set.value),
        _ => None,
    }
}

/// Why a parameter is missing, if it is newer than this kernel. Stable releases of older kernels have some newer
/// parameters, so this is asked only once it is known to be missing.
fn too_young(setting: &Setting, error: &StepError) -> Option<String> {
    let here = Since::of_release(&linux::features::release())?;
    let since = setting.knob.since.filter(|since| here < *since)?;
    matches!(error, StepError::NoParameter { .. })
        .then(|| format!("Linux {since} is the first kernel that has it"))
}

/// Why the kernel has no such algorithm. If there is a module, the kernel loads it when the algorithm is named.
fn lacks_algorithm(name: &str) -> anyhow::Result<Option<String>> {
    let path = format!("/lib/modules/{}/modules.dep", linux::features::release());
    let module = || std::fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("/tcp_{name}.ko")));
    let has = is_listed(name, "net/ipv4/tcp_available_congestion_control")? || module();
    Ok((!has).then(|| format!("this kernel has no {name}, and no module tcp_{name}")))
}

/// Whether a name is one of the words of a parameter.
fn is_listed(name: &str, key: &str) -> anyhow::Result<bool> {
    let key = sysctl::Key::new(key).expect("a constant key is a path");
    Ok(sysctl::read(&key)?.unwrap_or_default().split_whitespace().any(|one| one == name))
}

/// Compares a limit on the latency of CPUs with the one in force now.
fn latency(wanted: &Wanted, limit_us: u32) -> anyhow::Result<Outcome> {
    let old = match latency::limit()? {
        Limit::Unknown => {
            return Ok(Outcome::Impossible("this kernel has no /dev/cpu_dma_latency".to_owned()));
        }
        Limit::Micros(now) if now <= limit_us => return Ok(Outcome::Already),
        Limit::Micros(now) => now.to_string(),
        Limit::None => "no limit".to_owned(),
    };
    let held = Some((old, limit_us.to_string()));
    Ok(Outcome::Change(Change { wanted: wanted.clone(), steps: Vec::new(), held }))
}
