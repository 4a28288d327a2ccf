//! Whether this kernel takes a setting: found out by making it, in a namespace that ends with the question.

use linux::features::Facts;
use linux::netlink::Netlink;
use linux::sysfs::LinkAttribute;
use linux::{CpuSet, IfName, Link, LinkKind, Netns, VethPeer, sysctl};
use plan::{ApplyError, Kernel, Place, Placed, StepState, look, preview};
use tune::{Lives, Nic, QueueFile, Setting, Settings, Since, Site, ValueKind};

use crate::{Contender, LabError, card_look, side_settings};

/// Whose the machine is on which settings are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineUse {
    /// Others' too: what all of it shares is left alone.
    Shared,
    /// Ours as a whole: a VM that was booted for the race.
    Ours,
    /// The same, with cards at the ends of the wire. They have what the veth here has not, so that what is a card's
    /// is left to [`crate::prove_on_cards`].
    OursWithCards,
    /// One of those between which the user lets a race take place, for which all of it may be set: one data path
    /// stands at a time, and whatever happens everything is taken back.
    Given,
}

/// Adds to contenders with settings why these cannot be made here, and sends settings by the way that is open.
///
/// # Errors
/// A contender that must be able to run cannot; or there can be no namespace.
pub fn prove(contenders: &mut [Contender], facts: &Facts, machine: MachineUse) -> Result<(), LabError> {
    for contender in contenders.iter_mut().filter(|contender| !contender.settings.is_empty()) {
        let Settings { client, server } = &mut contender.settings;
        let unmet = settle([client, server], facts, machine)?;
        contender.cannot(unmet)?;
    }
    Ok(())
}

/// Why some of these settings of one side cannot be made on this machine, which a race between machines was given, and
/// whose link and CPUs are those of `site`. Sends settings by the way that is open.
///
/// # Errors
/// There can be no namespace, or the kernel does not answer.
pub(crate) fn prove_on_machine(
    settings: &mut Vec<Setting>,
    facts: &Facts,
    mut site: Site,
) -> Result<Vec<String>, LabError> {
    let mut unmet = settle([settings], facts, MachineUse::Given)?;
    if settings.iter().any(|setting| setting.lives == Lives::Interrupts) {
        site.nic.interrupts = card_look::interrupts_of(&site.node, &site.wire)?;
    }
    let mut kernel = Kernel::new()?;
    let queues = side_settings::nic(site.nic.clone(), settings);
    for setting in settings.iter().filter(|setting| is_of_machine(setting.lives)) {
        if let Some(why) = setting.refused_by(&queues).or_else(|| setting.exceeds(&queues)) {
            unmet.push(format!("{} = {}: {why}", setting.knob.id, setting.value));
            continue;
        }
        let steps = setting.plan(&site).steps;
        let lacked = steps.iter().find_map(|placed| unmade(placed, &mut kernel));
        let lacked = lacked.or_else(|| steps.is_empty().then(|| LACKED.to_owned()));
        unmet.extend(lacked.map(|why| format!("{} = {}: {why}", setting.knob.id, setting.value)));
    }
    Ok(unmet)
}

/// Why a step cannot be made here, as far as can be said without making it: there is nothing to set, or a card says
/// that the value is more than it takes.
fn unmade(placed: &Placed, kernel: &mut Kernel) -> Option<String> {
    match look(placed, kernel) {
        Ok(StepState::Absent) => Some(LACKED.to_owned()),
        Ok(_) => preview(placed, kernel).err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

const LACKED: &str = "it has no such setting";

/// Tries settings, and sends them by the way that is open. Returns why some cannot be made, each reason once.
fn settle<const SIDES: usize>(
    sides: [&mut Vec<Setting>; SIDES],
    facts: &Facts,
    machine: MachineUse,
) -> Result<Vec<String>, LabError> {
    let netns = TrialNetns::new(facts, machine)?;
    let settings = || sides.iter().flat_map(|side| side.iter());
    let flows = settings().any(|one| matches!(one.lives, Lives::Machine(_)));
    let mut unmet = Vec::new();
    // What both sides are to have is tried once: a table of rules cannot be made twice in one namespace.
    let mut tried: Vec<(Setting, Result<Setting, String>)> = Vec::new();
    for setting in sides.into_iter().flatten() {
        let known =
            tried.iter().find(|(requested, _)| requested == setting).map(|(_, settled)| settled.clone());
        let settled = match known {
            Some(settled) => settled,
            None => netns.settle(setting, flows)?,
        };
        tried.push((setting.clone(), settled.clone()));
        match settled {
            Ok(settled) => *setting = settled,
            Err(why) => unmet.push(format!("{} = {}: {why}", setting.knob.id, setting.value)),
        }
    }
    unmet.dedup();
    Ok(unmet)
}

/// A namespace with what settings need: a link that is up, and a route.
struct TrialNetns {
    netns: Netns,
    site: Site,
    /// The kernel's version, where its release begins with one.
    kernel: Option<Since>,
    online: CpuSet,
    machine: MachineUse,
}

impl TrialNetns {
    fn new(facts: &Facts, machine: MachineUse) -> Result<TrialNetns, LabError> {
        let name = |text| IfName::new(text).expect("a constant name is valid");
        let netns = Netns::anonymous()?;
        let netlink = Netlink::open_in(&netns)?;
        let peer = VethPeer { name: name("peer0"), netns: None, mtu: None, mac: None };
        let wire = name("wire0");
        netlink.link_add(&Link {
            name: wire.clone(),
            kind: LinkKind::Veth { peer },
            mtu: None,
            mac: None,
        })?;
        for end in ["wire0", "peer0"] {
            netlink.link_set_up(netlink.index_of(&name(end))?, true)?;
        }
        let address = "192.0.2.1/24".parse().expect("a constant prefix is valid");
        netlink.address_add(netlink.index_of(&wire)?, &address)?;
        let site = Site {
            process: Place::Host,
            routes: vec![(address.trunc(), wire.clone())],
            node: Place::Host,
            wire,
            cpus: linux::cpu::allowed()?,
            nic: Nic::default(),
        };
        let online = linux::cpu::online()?;
        Ok(TrialNetns { netns, site, kernel: Since::of_release(&facts.kernel), online, machine })
    }

    /// The setting as it can be made here, or why it cannot. `flows`: the table of flows is set as well.
    fn settle(&self, setting: &Setting, flows: bool) -> Result<Result<Setting, String>, LabError> {
        if let Some(until) = setting.knob.until.filter(|until| self.kernel.is_some_and(|here| here >= *until))
        {
            return Ok(Err(format!("it has no effect on kernels from {until}")));
        }
        // A card's interrupts and queues are asked on the card, which does not know which CPUs run.
        if let Some(why) = setting.offline(&self.online) {
            return Ok(Err(why));
        }
        if self.machine == MachineUse::Given
            && let Some(decided) = on_given_machine(setting)
        {
            return Ok(decided);
        }
        if let Lives::Machine(key) = setting.lives {
            return Ok(of_machine(key, self.machine).map(|()| setting.clone()));
        }
        // Trying these would set them for the whole machine.
        if matches!(setting.lives, Lives::CpuLatency | Lives::Debug(_) | Lives::Module(_)) {
            let elsewhere =
                if setting.lives == Lives::CpuLatency { "" } else { ", and a race between machines" };
            return Ok(Err(format!(
                "all of this machine shares it; `hostgap tune apply` can set it{elsewhere}"
            )));
        }
        if setting.lives == Lives::Interrupts && self.machine != MachineUse::OursWithCards {
            return Ok(Err("a veth has no interrupts; it takes a wire between cards (`--wire`)".to_owned()));
        }
        if self.machine == MachineUse::OursWithCards && is_of_card(setting.lives) {
            return Ok(Ok(setting.clone()));
        }
        let Err(why) = self.attempt(setting)? else {
            let off =
                matches!(setting.lives, Lives::Queue(QueueFile::RpsFlows)) && !flows && !machine_has_flows()?;
            return Ok(if off { Err(NO_FLOWS.to_owned()) } else { Ok(setting.clone()) });
        };
        if let Some(by_route) = setting.by_route()
            && self.attempt(&by_route)?.is_ok()
        {
            return Ok(Ok(by_route));
        }
        let module = match setting.knob.kind {
            ValueKind::Algorithm => format!("; this kernel seems to lack the module tcp_{}", setting.value),
            _ => String::new(),
        };
        Ok(Err(format!("{why}{module}")))
    }

    fn attempt(&self, setting: &Setting) -> Result<Result<(), String>, LabError> {
        let steps = setting.plan(&self.site).steps;
        let tried = self.netns.run(|| {
            let mut kernel = Kernel::new()?;
            Ok::<_, linux::Error>(steps.iter().try_for_each(|placed| plan::by_hand(placed, &mut kernel)))
        })??;
        Ok(tried.map_err(|error| match error {
            ApplyError::Step { why, .. } => why.to_string(),
            other => other.to_string(),
        }))
    }
}

/// What need not be tried on a machine that a race was given: what is never set there, with the reason, and what is
/// looked at where it is.
fn on_given_machine(setting: &Setting) -> Option<Result<Setting, String>> {
    match setting.lives {
        Lives::Mtu => Some(Err("the wire between machines is raced as it is".to_owned())),
        Lives::CpuLatency => {
            Some(Err("it is held by a process and not set; `hostgap tune apply` holds it".to_owned()))
        }
        Lives::Attribute(LinkAttribute::VirtualFunctions) => {
            Some(Err("it makes devices; `hostgap tune apply` can set it".to_owned()))
        }
        lives => is_of_machine(lives).then(|| Ok(setting.clone())),
    }
}

/// Whether all of a machine shares it, or its card has it.
fn is_of_machine(lives: Lives) -> bool {
    is_of_card(lives) || matches!(lives, Lives::Machine(_) | Lives::Debug(_) | Lives::Module(_))
}

/// Whether a setting is one of a card or of its queues, which its driver may refuse.
pub(crate) fn is_of_card(lives: Lives) -> bool {
    matches!(lives, Lives::Nic(_) | Lives::Indirection | Lives::Rss(_) | Lives::Interrupts | Lives::Mtu)
        || lives == Lives::Attribute(LinkAttribute::Threaded)
        || matches!(lives, Lives::Queue(QueueFile::RpsCpus | QueueFile::XpsCpus))
}

/// The parameter that turns following of flows on, for all namespaces.
const FLOWS: &str = "net/core/rps_sock_flow_entries";
const NO_FLOWS: &str = "following of flows is off on this machine: net/core/rps_sock_flow_entries, which all namespaces share, is 0";

fn machine_has_flows() -> Result<bool, LabError> {
    let key = sysctl::Key::new(FLOWS).expect("a constant key is a path");
    Ok(sysctl::read(&key)?.is_some_and(|value| value.trim() != "0"))
}

/// Whether a parameter of the whole machine may be set: where the machine is a VM that was booted for us, and we are in
/// its first namespace, which alone has it.
fn of_machine(key: &str, machine: MachineUse) -> Result<(), String> {
    if machine == MachineUse::Shared {
        return Err(
            "all of this machine shares it; it races only in a VM that hostgap has booted, or between machines"
                .to_owned()
        );
    }
    let key = sysctl::Key::new(key).expect("the table's keys are paths");
    match sysctl::read(&key) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("this is not the machine's first network namespace, which alone has it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
