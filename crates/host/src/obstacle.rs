//! Why a setting is not made here, even if the kernel would accept it.

use ipnet::IpNet;
use linux::netlink::RouteMetric;
use linux::{IfName, Netlink, Netns, sysctl};
use plan::{ApplyError, Kernel, Place, StepError};
use tune::{Lives, QueueFile, Setting, Since, Site, Value};

use crate::{Change, Host, tracking};

const NO_LINK: &str = "there is no default route to find the link by: name the link with --dev";

impl Host {
    /// Why a setting makes no sense here after `changes`, even if the kernel accepts it.
    pub(crate) fn obstacle(
        &self,
        setting: &Setting,
        changes: &[Change],
    ) -> Result<Option<String>, linux::Error> {
        let here = Since::of_release(&linux::features::release());
        if let Some(until) = setting.knob.until.filter(|until| here.is_some_and(|here| here >= *until)) {
            return Ok(Some(format!("it has no effect on kernels from {until}")));
        }
        if let Some(why) = beyond(setting, self)? {
            return Ok(Some(why));
        }
        Ok(match setting.lives {
            Lives::Machine(_) | Lives::Debug(_) | Lives::Module(_) | Lives::CpuLatency
                if self.netns.is_some() =>
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
            Lives::Notrack => tracking::who_asks(&self.open()?)?,
            Lives::RootQdisc => self.lacks_qdisc(setting)?,
            Lives::Queue(QueueFile::RpsFlows) => self.lacks_flows(setting, changes)?,
            _ if self.device.is_none() => Some(NO_LINK.to_owned()),
            // The kernel looks the algorithm up when the route is made, which would be in the middle of `apply`.
            Lives::Route(RouteMetric::CongestionControl) => lacks_algorithm(&setting.value.to_string())?,
            _ => None,
        })
    }

    /// Why a namespace cannot have this algorithm as its default: outside the first namespace the kernel permits only
    /// those that it allows to all users.
    fn lacks_default(&self, name: &str) -> Result<Option<String>, linux::Error> {
        if let Some(why) = lacks_algorithm(name)? {
            return Ok(Some(why));
        }
        let is_allowed = self.netns.is_none() || is_listed(name, "net/ipv4/tcp_allowed_congestion_control")?;
        Ok((!is_allowed).then(|| {
            format!("the machine does not allow {name} in namespaces; the knob congctl sets it on a route")
        }))
    }

    /// Whether the link has a discipline for each of its send queues, as the kernel makes for cards with several.
    pub(crate) fn has_queues_of_their_own(&self) -> Result<bool, linux::Error> {
        let qdiscs = Netlink::open_in(&self.open()?)?.qdisc_counters()?;
        let index = self.device.as_ref().map(|device| device.index);
        Ok(qdiscs.iter().any(|qdisc| Some(qdisc.index) == index && qdisc.kind == "mq"))
    }

    /// A queue's part of RFS has no effect without the machine's flow table.
    fn lacks_flows(&self, setting: &Setting, changes: &[Change]) -> Result<Option<String>, linux::Error> {
        if self.device.is_none() {
            return Ok(Some(NO_LINK.to_owned()));
        }
        let makes_table = |change: &Change| change.wanted.setting.knob.id == "rps_sock_flow_entries";
        if setting.value == Value::Number(0) || changes.iter().any(makes_table) {
            return Ok(None);
        }
        // It is visible only in the machine's first namespace.
        let key = sysctl::Key::new("net/core/rps_sock_flow_entries").expect("a constant key is a path");
        let is_off = sysctl::read(&key)?.is_some_and(|entries| entries.trim() == "0");
        let how = if self.netns.is_some() { ", without --netns" } else { "" };
        Ok(is_off.then(|| {
            format!("it has no effect without the machine's flow table: set rps_sock_flow_entries first{how}")
        }))
    }

    /// Whether the kernel has a queueing discipline. The test makes one, on the loopback of a temporary namespace.
    fn lacks_qdisc(&self, setting: &Setting) -> Result<Option<String>, linux::Error> {
        if self.device.is_none() {
            return Ok(Some(NO_LINK.to_owned()));
        }
        let lo = IfName::new("lo").expect("a constant name is valid");
        let site = Site { node: Place::Host, wire: lo, ..self.site.clone() };
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

    /// Why a setting became no step.
    pub(crate) fn nowhere(&self, setting: &Setting, route: Option<IpNet>) -> String {
        let link = &self.site.wire;
        match (setting.lives, route) {
            (Lives::Route(_), Some(route)) if self.announced.contains(&route) => {
                format!(
                    "a router announced the route to {route}: its settings are lost with the next announcement"
                )
            }
            (Lives::Route(_), Some(route)) if self.shared.contains(&route) => several_lead_to(&[route]),
            (Lives::Route(_), None) if self.site.routes.is_empty() && !self.shared.is_empty() => {
                several_lead_to(&self.shared)
            }
            (Lives::Route(_), Some(route)) => {
                format!("no route to {route} leads over {link}; `ip route add {route} …` makes one")
            }
            (Lives::Route(RouteMetric::RtoMin), None) if !self.site.routes.is_empty() => {
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

/// Why nothing is set on routes with rivals.
pub(crate) fn several_lead_to(destinations: &[IpNet]) -> String {
    let all: Vec<String> = destinations.iter().map(IpNet::to_string).collect();
    format!("there are several routes to {}, and which of them is meant is not clear", all.join(", "))
}

/// Why a parameter is missing, if it is newer than this kernel. Stable releases of older kernels have some newer
/// parameters, so this is asked only once it is known to be missing.
pub(crate) fn too_young(setting: &Setting, error: &StepError) -> Option<String> {
    let here = Since::of_release(&linux::features::release())?;
    let since = setting.knob.since.filter(|since| here < *since)?;
    matches!(error, StepError::NoParameter { .. })
        .then(|| format!("Linux {since} is the first kernel that has it"))
}

/// Why the kernel has no such algorithm. If there is a module, the kernel loads it when the algorithm is named.
fn lacks_algorithm(name: &str) -> Result<Option<String>, linux::Error> {
    let path = format!("/lib/modules/{}/modules.dep", linux::features::release());
    let module = || std::fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("/tcp_{name}.ko")));
    let has = is_listed(name, "net/ipv4/tcp_available_congestion_control")? || module();
    Ok((!has).then(|| format!("this kernel has no {name}, and no module tcp_{name}")))
}

/// Whether a name is one of the words of a parameter.
fn is_listed(name: &str, key: &str) -> Result<bool, linux::Error> {
    let key = sysctl::Key::new(key).expect("a constant key is a path");
    Ok(sysctl::read(&key)?.unwrap_or_default().split_whitespace().any(|one| one == name))
}

/// Why a value is out of bounds, which the kernel would report only when the setting is made: CPUs that are offline, an
/// MTU above the driver's limit.
fn beyond(setting: &Setting, host: &Host) -> Result<Option<String>, linux::Error> {
    Ok(match (&setting.value, setting.lives) {
        (Value::Cpus(_), _) => {
            setting.offline(&linux::cpu::online()?).or_else(|| setting.refused_by(&host.site.nic))
        }
        (Value::Number(mtu), Lives::Mtu) => {
            let most = host.mtu_max.filter(|most| *mtu > u64::from(*most));
            most.map(|most| format!("the MTU of {} can be at most {most}", host.site.wire))
        }
        _ => None,
    })
}
